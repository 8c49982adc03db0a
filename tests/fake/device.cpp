/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, their attributes, and primary contexts. */
#include "driver.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of NVIDIA's data sheets and of cuDeviceGetAttribute, as far as they are known. */
static const fake_chip chips[] = {
  /* id, name, sm, SMs, MHz, memory MHz, bits, MiB, L2, shared memory of a block, of an SM */
    {"t4",      "Tesla T4",                75,  40,  1590, 5001,  256,  15360,  4 << 20,   64 << 10,  64 << 10 },
    {"a100",    "NVIDIA A100-SXM4-80GB",   80,  108, 1410, 1593,  5120, 81920,  40 << 20,  163 << 10,
     164 << 10                                                                                                 },
    {"l40s",    "NVIDIA L40S",             89,  142, 2520, 9001,  384,  46068,  96 << 20,  99 << 10,  100 << 10},
    {"h100",    "NVIDIA H100 80GB HBM3",   90,  132, 1980, 2619,  5120, 81559,  50 << 20,  227 << 10,
     228 << 10                                                                                                 },
    {"h200",    "NVIDIA H200",             90,  132, 1980, 3201,  6144, 143771, 50 << 20,  227 << 10, 228 << 10},
    {"b200",    "NVIDIA B200",             100, 148, 1965, 3996,  7680, 183359, 126 << 20, 227 << 10, 228 << 10},
    {"rtx5090", "NVIDIA GeForce RTX 5090", 120, 170, 2407, 14001, 512,  32607,  96 << 20,  99 << 10,
     100 << 10                                                                                                 },
};

std::vector<std::unique_ptr<fake_device>> &fake_devices =
    *new std::vector<std::unique_ptr<fake_device>>;
static thread_local fake_device *current;

fake_device *fake_current()
{
    return current;
}
static fake_device *device_at(int i)
{
    return i >= 0 && static_cast<size_t>(i) < fake_devices.size()
               ? fake_devices[static_cast<size_t>(i)].get()
               : nullptr;
}
static fake_device *device_of(void *context)
{
    for (auto &d : fake_devices)
        if (d.get() == context)
            return d.get();
    return nullptr;
}

static const char *setting(const char *name, const char *otherwise)
{
    const char *v = getenv(name);
    return v && *v ? v : otherwise;
}

FAKE_API cuInit(unsigned flags)
{
    const int injected = fake_injected(__func__);
    if (injected || flags)
        return injected ? injected : CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    if (!fake_devices.empty())
        return CUDA_SUCCESS;
    const char *id = setting("FAKE_CUDA_CHIP", "h200");
    const fake_chip *chip = nullptr;
    for (const fake_chip &c : chips)
        if (!strcmp(c.id, id))
            chip = &c;
    const int n = atoi(setting("FAKE_CUDA_DEVICES", "1"));
    if (!chip || n < 0 || n > 64)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE,
                           "FAKE_CUDA_CHIP=%s, FAKE_CUDA_DEVICES=%d: unknown", id, n);
    if (!n)
        return 100; /* CUDA_ERROR_NO_DEVICE */
    const size_t mib = strtoull(setting("FAKE_CUDA_MEMORY_MIB", "0"), NULL, 10);
    for (int i = 0; i < n; i++) {
        fake_devices.push_back(std::make_unique<fake_device>());
        fake_device *d = fake_devices.back().get();
        d->ordinal = i;
        d->chip = chip;
        d->total = (mib ? mib : chip->memory_mib) << 20;
    }
    fake_watch_faults();
    return CUDA_SUCCESS;
}
FAKE_API cuDriverGetVersion(int *out)
{
    *out = atoi(setting("FAKE_CUDA_VERSION", "13000"));
    return CUDA_SUCCESS;
}
FAKE_API cuDeviceGetCount(int *out)
{
    FAKE_ENTER;
    *out = static_cast<int>(fake_devices.size());
    return CUDA_SUCCESS;
}
FAKE_API cuDeviceGet(int *out, int i)
{
    FAKE_ENTER;
    *out = i;
    return device_at(i) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
FAKE_API cuDeviceGetName(char *out, int size, int i)
{
    FAKE_ENTER;
    const fake_device *d = device_at(i);
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(out, static_cast<size_t>(size), "%s", d->chip->name);
    return CUDA_SUCCESS;
}
FAKE_API cuDeviceTotalMem_v2(size_t *out, int i)
{
    FAKE_ENTER;
    const fake_device *d = device_at(i);
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = d->total;
    return CUDA_SUCCESS;
}
FAKE_API cuDeviceGetUuid_v2(unsigned char out[16], int i)
{
    FAKE_ENTER;
    memset(out, 0xfa, 16);
    out[15] = static_cast<unsigned char>(i);
    return device_at(i) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
FAKE_API cuDeviceGetPCIBusId(char *out, int size, int i)
{
    FAKE_ENTER;
    snprintf(out, static_cast<size_t>(size), "0000:%02X:00.0", i + 1);
    return device_at(i) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* CU_DEVICE_ATTRIBUTE_…: -1: the fake does not know it. */
static int attribute_of(const fake_chip *c, int attribute, int ordinal)
{
    switch (attribute) {
    case 1:
        return 1024; /* MAX_THREADS_PER_BLOCK */
    case 2:
    case 3:
        return 1024; /* MAX_BLOCK_DIM_X, _Y */
    case 4:
        return 64; /* MAX_BLOCK_DIM_Z */
    case 5:
        return INT_MAX; /* MAX_GRID_DIM_X */
    case 6:
    case 7:
        return 65535; /* MAX_GRID_DIM_Y, _Z */
    case 8:
        return 48 << 10; /* MAX_SHARED_MEMORY_PER_BLOCK */
    case 9:
        return 64 << 10; /* TOTAL_CONSTANT_MEMORY */
    case 10:
        return 32; /* WARP_SIZE */
    case 12:
        return 64 << 10; /* MAX_REGISTERS_PER_BLOCK */
    case 13:
        return c->clock_mhz * 1000; /* CLOCK_RATE */
    case 16:
        return c->n_sms; /* MULTIPROCESSOR_COUNT */
    case 17:
    case 18:
        return 0; /* KERNEL_EXEC_TIMEOUT, INTEGRATED */
    case 19:
    case 31:
    case 32:
        return 1; /* CAN_MAP_HOST_MEMORY, CONCURRENT_KERNELS, ECC_ENABLED */
    case 20:
    case 34:
    case 50:
        return 0; /* COMPUTE_MODE, PCI_DEVICE_ID, PCI_DOMAIN_ID */
    case 33:
        return ordinal + 1; /* PCI_BUS_ID */
    case 36:
        return c->memory_mhz * 1000; /* MEMORY_CLOCK_RATE */
    case 37:
        return c->bus_bits; /* GLOBAL_MEMORY_BUS_WIDTH */
    case 38:
        return static_cast<int>(c->l2_bytes); /* L2_CACHE_SIZE */
    case 39:
        return c->sm == 75                   ? 1024
               : c->sm == 89 || c->sm == 120 ? 1536
                                             : 2048; /* MAX_THREADS_PER_MULTIPROCESSOR */
    case 40:
        return 3; /* ASYNC_ENGINE_COUNT */
    case 41:
    case 78:
    case 83:
        return 1; /* UNIFIED_ADDRESSING, STREAM_PRIORITIES, MANAGED_MEMORY */
    case 75:
        return c->sm / 10; /* COMPUTE_CAPABILITY_MAJOR */
    case 76:
        return c->sm % 10; /* COMPUTE_CAPABILITY_MINOR */
    case 81:
        return static_cast<int>(c->shared_per_sm); /* MAX_SHARED_MEMORY_PER_MULTIPROCESSOR */
    case 82:
        return 64 << 10; /* MAX_REGISTERS_PER_MULTIPROCESSOR */
    case 97:
        return static_cast<int>(c->shared_optin); /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    case 106:
        return c->sm == 75 ? 16 : 32; /* MAX_BLOCKS_PER_MULTIPROCESSOR */
    case 111:
        return 1 << 10; /* RESERVED_SHARED_MEMORY_PER_BLOCK */
    default:
        return -1;
    }
}
FAKE_API cuDeviceGetAttribute(int *out, int attribute, int i)
{
    FAKE_ENTER;
    const fake_device *d = device_at(i);
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    const int v = attribute_of(d->chip, attribute, i);
    if (v < 0)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE,
                           "cuDeviceGetAttribute: device.cpp does not know %d", attribute);
    *out = v;
    return CUDA_SUCCESS;
}

/* ---- contexts ---- */
FAKE_API cuDevicePrimaryCtxRetain(void **out, int i)
{
    FAKE_ENTER;
    fake_device *d = device_at(i);
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    d->retained++;
    *out = d;
    return CUDA_SUCCESS;
}
FAKE_API cuDevicePrimaryCtxRelease_v2(int i)
{
    FAKE_ENTER;
    fake_device *d = device_at(i);
    if (!d || !d->retained)
        return d ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_DEVICE;
    d->retained--;
    return CUDA_SUCCESS;
}
FAKE_API cuDevicePrimaryCtxSetFlags_v2(int i, unsigned)
{
    FAKE_ENTER;
    return device_at(i) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
FAKE_API cuCtxSetCurrent(void *context)
{
    const int injected = fake_injected(__func__);
    if (injected)
        return injected;
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    fake_device *d = device_of(context);
    if (context && (!d || !d->retained))
        return CUDA_ERROR_INVALID_CONTEXT;
    current = d;
    return CUDA_SUCCESS;
}
FAKE_API cuCtxGetCurrent(void **out)
{
    *out = current;
    return CUDA_SUCCESS;
}
FAKE_API cuCtxGetDevice(int *out)
{
    FAKE_ENTER;
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = current->ordinal;
    return CUDA_SUCCESS;
}
FAKE_API cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    FAKE_ENTER;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
FAKE_API cuDeviceCanAccessPeer(int *out, int i, int peer)
{
    FAKE_ENTER;
    if (!device_at(i) || !device_at(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *out = i != peer && strcmp(setting("FAKE_CUDA_PEERS", "1"), "0") != 0;
    return CUDA_SUCCESS;
}
FAKE_API cuCtxEnablePeerAccess(void *context, unsigned)
{
    FAKE_ENTER;
    const fake_device *d = device_of(context);
    if (!current || !d || d == current)
        return current ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_CONTEXT;
    return current->peers.insert(d->ordinal).second ? CUDA_SUCCESS
                                                    : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
