/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of kernels, and launches. An image for this machine (the fake NVRTC's) is loaded; one for a GPU (nvcc's) stands
 * for what the makefile compiled from all of kernels/: its kernels are found by name there. */
#include "driver.h"
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SHARED_WITHOUT_ASKING = 48 << 10, MAX_PARAMETERS = 32764 };

struct fake_library {
    void *handle; /* of dlopen; NULL: the built-in images */
    int fd;
    std::map<std::string, std::unique_ptr<fake_kernel>> kernels;
};
static std::set<fake_library *> &libraries = *new std::set<fake_library *>;
static std::set<const fake_kernel *> &all_kernels = *new std::set<const fake_kernel *>;
static std::map<std::string, fake_kernel> &builtin = *new std::map<std::string, fake_kernel>;

#if defined(__x86_64__)
enum { HOST_MACHINE = EM_X86_64 };
#else
enum { HOST_MACHINE = EM_AARCH64 };
#endif

static int list_kernels(void *handle, const char *path,
                        const std::function<void(const fake_kernel &)> &each)
{
    const emu_image_table *t = static_cast<const emu_image_table *>(dlsym(handle, "emu_image"));
    if (!t || t->version != EMU_VERSION)
        return fake_refuse(CUDA_ERROR_INVALID_IMAGE, "%s: %s", path,
                           t ? "of another emulator.h" : "no emu_image");
    for (const emu_kernel *k = *t->kernels; k; k = k->next)
        each({k, t->now, nullptr, {}});
    return CUDA_SUCCESS;
}

static std::string builtin_folder()
{
    const char *set = getenv("FAKE_CUDA_KERNELS");
    Dl_info info;
    if (set)
        return set;
    if (!dladdr(reinterpret_cast<void *>(builtin_folder), &info))
        return "";
    const std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/')) + "/../kernels";
}

static int load_builtin()
{
    const std::string folder = builtin_folder();
    DIR *d = opendir(folder.c_str());
    if (!d)
        return fake_refuse(CUDA_ERROR_NOT_FOUND, "no folder %s with emulated kernels",
                           folder.c_str());
    int r = CUDA_SUCCESS;
    for (struct dirent *e; !r && (e = readdir(d));) {
        const std::string path = folder + "/" + e->d_name;
        if (path.size() < 3 || path.substr(path.size() - 3) != ".so")
            continue;
        void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!handle)
            r = fake_refuse(CUDA_ERROR_INVALID_IMAGE, "%s", dlerror());
        else
            r = list_kernels(handle, path.c_str(), [&](const fake_kernel &k) {
                if (!builtin.emplace(k.kernel->name, k).second)
                    fake_abort("two kernels are named %s, one of them in %s", k.kernel->name,
                               path.c_str());
            });
    }
    closedir(d);
    return r;
}

static size_t image_bytes(const void *image)
{
    const Elf64_Ehdr *h = static_cast<const Elf64_Ehdr *>(image);
    return h->e_shoff + static_cast<size_t>(h->e_shnum) * h->e_shentsize;
}

/* The file descriptor stays open: another image must not get the same name. */
static int load_image(fake_library *l, const void *image)
{
    char path[64];
    const size_t bytes = image_bytes(image);
    l->fd = memfd_create("fake-cuda-image", 0);
    /* not /proc/self/fd/N: ld.so knows libraries by name, and so names the core its copies of plugins */
    snprintf(path, sizeof path, "/proc/self/./fd/%d", l->fd);
    if (l->fd < 0 || write(l->fd, image, bytes) != static_cast<ssize_t>(bytes))
        return CUDA_ERROR_INVALID_IMAGE;
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle)
        return fake_refuse(CUDA_ERROR_INVALID_IMAGE, "an image: %s", dlerror());
    return list_kernels(l->handle, "an image", [&](const fake_kernel &k) {
        auto own = std::make_unique<fake_kernel>(k);
        own->library = l;
        l->kernels[k.kernel->name] = std::move(own);
    });
}

FAKE_API cuLibraryLoadData(fake_library **out, const void *image, void *, void *, unsigned, void *,
                           void *, unsigned)
{
    FAKE_ENTER;
    const Elf64_Ehdr *h = static_cast<const Elf64_Ehdr *>(image);
    if (!image)
        return CUDA_ERROR_INVALID_VALUE;
    auto l = std::make_unique<fake_library>();
    l->fd = -1;
    int r = CUDA_SUCCESS;
    if (!memcmp(h->e_ident, ELFMAG, SELFMAG) && h->e_machine == HOST_MACHINE)
        r = load_image(l.get(), image);
    else if (builtin.empty())
        r = load_builtin();
    if (r) {
        if (l->fd >= 0)
            close(l->fd);
        return r;
    }
    for (const auto &k : builtin)
        if (!l->handle) {
            l->kernels[k.first] = std::make_unique<fake_kernel>(k.second);
            l->kernels[k.first]->library = l.get();
        }
    for (const auto &k : l->kernels)
        all_kernels.insert(k.second.get());
    *out = l.release();
    libraries.insert(*out);
    return CUDA_SUCCESS;
}
FAKE_API cuLibraryUnload(fake_library *l)
{
    FAKE_ENTER;
    if (!libraries.erase(l))
        return CUDA_ERROR_INVALID_HANDLE;
    fake_run_all();
    for (const auto &k : l->kernels)
        all_kernels.erase(k.second.get());
    if (l->handle)
        dlclose(l->handle);
    if (l->fd >= 0)
        close(l->fd);
    delete l;
    return CUDA_SUCCESS;
}
FAKE_API cuLibraryGetModule(void **out, fake_library *l)
{
    FAKE_ENTER;
    if (!libraries.count(l))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = l;
    return CUDA_SUCCESS;
}
FAKE_API cuLibraryGetKernel(fake_kernel **out, fake_library *l, const char *name)
{
    FAKE_ENTER;
    if (!libraries.count(l))
        return CUDA_ERROR_INVALID_HANDLE;
    const auto i = l->kernels.find(name);
    if (i == l->kernels.end())
        return fake_refuse(CUDA_ERROR_NOT_FOUND, "no kernel %s in this library", name);
    *out = i->second.get();
    return CUDA_SUCCESS;
}
FAKE_API cuKernelGetFunction(fake_kernel **out, fake_kernel *k)
{
    FAKE_ENTER;
    *out = k;
    return all_kernels.count(k) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* CU_FUNC_ATTRIBUTE_…: MAX_THREADS_PER_BLOCK 0, MAX_DYNAMIC_SHARED_SIZE_BYTES 8, PREFERRED_SHARED_MEMORY_CARVEOUT 9. */
static int set_attribute(fake_kernel *k, int attribute, int value, const fake_device *d)
{
    if (!d || !all_kernels.count(k))
        return d ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
    if (attribute == 9)
        return CUDA_SUCCESS;
    if (attribute != 8 || value < 0 || static_cast<size_t>(value) > d->chip->shared_optin)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "kernel %s: attribute %d to %d",
                           k->kernel->name, attribute, value);
    k->shared[d->ordinal] = value;
    return CUDA_SUCCESS;
}
FAKE_API cuKernelSetAttribute(int attribute, int value, fake_kernel *k, int device)
{
    FAKE_ENTER;
    return set_attribute(k, attribute, value,
                         static_cast<size_t>(device) < fake_devices.size()
                             ? fake_devices[static_cast<size_t>(device)].get()
                             : nullptr);
}
FAKE_API cuFuncSetAttribute(fake_kernel *k, int attribute, int value)
{
    FAKE_ENTER;
    return set_attribute(k, attribute, value, fake_current());
}
FAKE_API cuFuncGetAttribute(int *out, int attribute, const fake_kernel *k)
{
    FAKE_ENTER;
    if (!all_kernels.count(k))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = attribute == 0 ? k->kernel->threads : 0;
    return attribute == 0 || attribute == 1 || attribute == 3 ? CUDA_SUCCESS
                                                              : CUDA_ERROR_INVALID_VALUE;
}

/* ---- launches ---- */
struct launch {
    const emu_kernel *kernel;
    emu_block **now;
    emu_dim3 grid, size;
    unsigned shared;
    int device;
    std::vector<std::vector<char>> parameters;
};

static void check_pointers(const launch &l, void **arguments)
{
    for (unsigned i = 0; i < l.kernel->n_arguments; i++) {
        if (!l.kernel->arguments[i].is_pointer)
            continue;
        const void *p = *static_cast<void **>(arguments[i]);
        const fake_memory *m = fake_find(p, 0);
        if (p && (!m || !fake_may_touch(l.device, m)))
            fake_abort("kernel %s, argument %u: %p is not memory of device %d", l.kernel->name, i,
                       p, l.device);
    }
}

static void run_launch(const launch &l)
{
    static uint64_t n_launches;
    std::vector<std::vector<char>> own = l.parameters; /* a kernel may change its parameters */
    std::vector<void *> arguments;
    for (std::vector<char> &p : own)
        arguments.push_back(p.data());
    fake_device *d = fake_devices[static_cast<size_t>(l.device)].get();
    const std::string injected = std::string("kernel.") + l.kernel->name;
    const int failed = fake_injected(injected.c_str());
    if (failed) {
        d->failed = failed;
        return;
    }
    check_pointers(l, arguments.data());
    const uint64_t seed = fake_seed();
    emu_launch(l.kernel, l.now, arguments.data(), l.grid, l.size, l.shared,
               seed ? (seed << 32) + ++n_launches : 0);
    fake_check_edges(l.kernel->name);
}

static int check_launch(const fake_kernel *k, const launch &l)
{
    const uint64_t threads = static_cast<uint64_t>(l.size.x) * l.size.y * l.size.z;
    const auto asked = k->shared.find(l.device);
    const unsigned most = asked == k->shared.end() ? static_cast<unsigned>(SHARED_WITHOUT_ASKING)
                                                   : static_cast<unsigned>(asked->second);
    if (!l.grid.x || !l.grid.y || !l.grid.z || l.grid.x > 0x7fffffffu || l.grid.y > 65535 ||
        l.grid.z > 65535)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "kernel %s: a grid of %u x %u x %u",
                           l.kernel->name, l.grid.x, l.grid.y, l.grid.z);
    if (!threads || l.size.z > 64 || threads > 1024 ||
        threads > static_cast<uint64_t>(l.kernel->threads))
        return fake_refuse(CUDA_ERROR_INVALID_VALUE,
                           "kernel %s: blocks of %u x %u x %u threads; it is for %d",
                           l.kernel->name, l.size.x, l.size.y, l.size.z, l.kernel->threads);
    if (l.shared > most)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE,
                           "kernel %s: %u bytes of shared memory; set to at most %u",
                           l.kernel->name, l.shared, most);
    return CUDA_SUCCESS;
}

FAKE_API cuLaunchKernel(fake_kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned x,
                        unsigned y, unsigned z, unsigned shared, void *stream, void **parameters,
                        void **extra)
{
    FAKE_ENTER;
    fake_stream *s = fake_stream_of(stream);
    if (!s || !all_kernels.count(k))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!fake_current() || fake_current()->ordinal != s->device)
        return fake_refuse(CUDA_ERROR_INVALID_CONTEXT,
                           "kernel %s: a stream of device %d, which is not current",
                           k->kernel->name, s->device);
    if (extra)
        return CUDA_ERROR_NOT_SUPPORTED;
    launch l = {
        k->kernel, k->now, {gx,  gy, gz},
          {x, y, z},
          shared, s->device, { }
    };
    const int r = check_launch(k, l);
    if (r)
        return r;
    size_t total = 0;
    for (unsigned i = 0; i < k->kernel->n_arguments; i++) {
        const char *p = parameters ? static_cast<const char *>(parameters[i]) : nullptr;
        if (!p)
            return fake_refuse(CUDA_ERROR_INVALID_VALUE, "kernel %s: argument %u is missing",
                               k->kernel->name, i);
        l.parameters.emplace_back(p, p + k->kernel->arguments[i].bytes);
        total += k->kernel->arguments[i].bytes;
    }
    if (total > MAX_PARAMETERS)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "kernel %s: %zu bytes of arguments",
                           k->kernel->name, total);
    fake_add_run(s, k->kernel->name, [l] { run_launch(l); });
    return CUDA_SUCCESS;
}
