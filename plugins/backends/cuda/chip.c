/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"
#include <stdio.h>
#include <string.h>

/* What is known of a chip. */

/* A chip with a name. Peaks are the vendor's dense numbers (NVIDIA's data sheets and architecture
 * white papers); core/cost/machine.c has the same for those that it knows. */
typedef struct named_chip {
    const char *model; /* what the driver's name of the device contains */
    cuda_chip chip;
} named_chip;

enum { KIB = 1 << 10, MIB = 1 << 20 };
static const named_chip chips[] = {
    {"A100",
     {"a100", 80, 108, 80000000000, 40 * MIB, 163 * KIB, 312e12, 19.5e12, 156e12, 2.039e12}                 },
    {"RTX A6000",
     {"rtxa6000", 86, 84, 48000000000, 6 * MIB, 99 * KIB, 154.8e12, 38.7e12, 77.4e12, 768e9}                },
    {"RTX 3090",
     {"rtx3090", 86, 82, 24000000000, 6 * MIB, 99 * KIB, 71e12, 35.6e12, 35.6e12, 936e9}                    },
    {"L40S",           {"l40s", 89, 142, 48000000000, 96 * MIB, 99 * KIB, 362e12, 91.6e12, 183e12, 864e9}   },
    {"RTX 4090",
     {"rtx4090", 89, 128, 24000000000, 72 * MIB, 99 * KIB, 165.2e12, 82.6e12, 82.6e12, 1008e9}              },
    {"H100 80GB HBM3",
     {"h100", 90, 132, 80000000000, 50 * MIB, 227 * KIB, 989e12, 67e12, 494.5e12, 3.35e12}                  },
    {"H200",           {"h200", 90, 132, 141000000000, 50 * MIB, 227 * KIB, 989e12, 67e12, 494.5e12, 4.8e12}},
    {"GB200",
     {"gb200", 100, 148, 186000000000, 126 * MIB, 227 * KIB, 2500e12, 80e12, 1250e12, 8e12}                 },
    {"B200",           {"b200", 100, 148, 180000000000, 126 * MIB, 227 * KIB, 2250e12, 80e12, 1125e12, 8e12}},
    {"RTX 5090",
     {"rtx5090", 120, 170, 32000000000, 96 * MIB, 99 * KIB, 209.5e12, 104.8e12, 104.8e12, 1792e9}           },
    {"RTX PRO 6000",
     {"rtxpro6000", 120, 188, 96000000000, 128 * MIB, 99 * KIB, 503.8e12, 126e12, 251.9e12,
      1792e9}                                                                                               },
};

tt_status cuda_chip_named(const char *name, cuda_chip *out, tt_error *err)
{
    char names[200] = "";
    for (size_t i = 0, n = 0; i < TT_COUNT(chips); i++, n = strlen(names)) {
        if (strcmp(chips[i].chip.name, name) == 0) {
            *out = chips[i].chip;
            return TT_OK;
        }
        snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", chips[i].chip.name);
    }
    return TT_FAIL(err, TT_ENOTFOUND, "cuda knows the chips %s, not \"%s\"", names, name);
}

/* ---- the chip that is here ---- */

/* Flops per cycle of one multiprocessor: dense bf16 products with f32 sums, f32 arithmetic, tf32. */
static void chip_flops_per_cycle(int sm, double *bf16, double *f32, double *tf32)
{
    *f32 = sm == 80 ? 128 : 256;
    *bf16 = sm >= 100 && sm < 120 ? 8192 : sm == 90 ? 4096 : sm == 80 ? 2048 : 1024;
    *tf32 = *bf16 / 2;
}

static tt_status chip_attribute(int device, int attribute, int *out, tt_error *err)
{
    return cuda_check(cu.cuDeviceGetAttribute(out, attribute, device), err,
                      "cuDeviceGetAttribute %d of device %d", attribute, device);
}

/* Attributes that newer drivers may drop: 0 then. */
static double chip_optional(int device, int attribute)
{
    int value = 0;
    return (int)cu.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS_ ? value : 0;
}

static void chip_peaks(CUdevice device, cuda_chip *c)
{
    for (size_t i = 0; i < TT_COUNT(chips); i++)
        if (strstr(c->name, chips[i].model) && chips[i].chip.n_sms == c->n_sms) {
            c->bf16_flops = chips[i].chip.bf16_flops;
            c->f32_flops = chips[i].chip.f32_flops;
            c->tf32_flops = chips[i].chip.tf32_flops;
            c->bandwidth = chips[i].chip.bandwidth;
            return;
        }
    double bf16, f32, tf32;
    chip_flops_per_cycle(c->sm, &bf16, &f32, &tf32);
    const double cycles = 1e3 * chip_optional(device, CUDA_ATTRIBUTE_CLOCK_RATE) * c->n_sms;
    c->bf16_flops = cycles * bf16;
    c->f32_flops = cycles * f32;
    c->tf32_flops = cycles * tf32;
    c->bandwidth = 1e3 * chip_optional(device, CUDA_ATTRIBUTE_MEMORY_CLOCK_RATE) * 2 / 8 *
                   chip_optional(device, CUDA_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
}

static tt_status chip_check(int device, const cuda_chip *c, tt_error *err)
{
    int mode = 0, unified = 0;
    if (c->sm < 80)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "device %d (%s) has compute capability %d.%d; 8.0 (Ampere) or newer is "
                       "needed",
                       device, c->name, c->sm / 10, c->sm % 10);
    TT_TRY(chip_attribute(device, CUDA_ATTRIBUTE_COMPUTE_MODE, &mode, err));
    TT_TRY(chip_attribute(device, CUDA_ATTRIBUTE_UNIFIED_ADDRESSING, &unified, err));
    if (mode == CUDA_COMPUTEMODE_PROHIBITED)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "device %d (%s) is in compute mode \"prohibited\": nvidia-smi -c 0 allows "
                       "its use",
                       device, c->name);
    if (!unified)
        return TT_FAIL(err, TT_EUNSUPPORTED, "device %d (%s) has no unified addresses", device,
                       c->name);
    return TT_OK;
}

tt_status cuda_chip_here(int ordinal, cuda_chip *out, tt_error *err)
{
    cuda_chip c = {0};
    CUdevice device;
    int major, minor, l2;
    size_t bytes;
    const int count = cuda_driver_device_count();
    if (ordinal < 0 || ordinal >= count)
        return TT_FAIL(err, TT_EINVAL,
                       "backend.device: there is no device %d; this process sees %d", ordinal,
                       count);
    TT_TRY(cuda_check(cu.cuDeviceGet(&device, ordinal), err, "cuDeviceGet %d", ordinal));
    TT_TRY(cuda_check(cu.cuDeviceGetName(c.name, sizeof c.name, device), err,
                      "cuDeviceGetName of device %d", ordinal));
    TT_TRY(chip_attribute(device, CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major, err));
    TT_TRY(chip_attribute(device, CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor, err));
    c.sm = 10 * major + minor;
    TT_TRY(chip_check(device, &c, err));
    TT_TRY(cuda_check(cu.cuDeviceTotalMem_v2(&bytes, device), err, "cuDeviceTotalMem of device %d",
                      ordinal));
    TT_TRY(chip_attribute(device, CUDA_ATTRIBUTE_MULTIPROCESSOR_COUNT, &c.n_sms, err));
    TT_TRY(chip_attribute(device, CUDA_ATTRIBUTE_L2_CACHE_SIZE, &l2, err));
    TT_TRY(chip_attribute(device, CUDA_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &c.shared_bytes,
                          err));
    c.memory_bytes = (int64_t)bytes;
    c.l2_bytes = l2;
    chip_peaks(device, &c);
    *out = c;
    return TT_OK;
}
