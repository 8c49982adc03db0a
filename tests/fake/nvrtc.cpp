/* SPDX-License-Identifier: Apache-2.0 */
/* A fake NVRTC: compiles a program with the C++ compiler and emulator.h to a shared object, which it calls the cubin; the
 * fake driver loads it. Results are kept by a hash of all that goes in, in FAKE_NVRTC_CACHE or else in ../cache beside the library.
 * What the makefile has compiled already, ../kernels, is taken from there. */
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <set>
#include <spawn.h>
#include <sstream>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#define NVRTC_API extern "C" __attribute__((visibility("default"))) int
extern char **environ;

enum {
    SUCCESS,
    OUT_OF_MEMORY,
    PROGRAM_CREATION_FAILURE,
    INVALID_INPUT,
    INVALID_PROGRAM,
    INVALID_OPTION,
    COMPILATION
};

struct program {
    std::string name, source, log, cubin;
    std::vector<std::pair<std::string, std::string>> headers; /* name, text */
};

static std::string read_file(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    std::ostringstream all;
    all << in.rdbuf();
    return all.str();
}
static bool write_file(const std::string &path, const std::string &text)
{
    std::ofstream out(path, std::ios::binary);
    out << text;
    out.close();
    return !out.fail();
}

/* Eight bytes at a time: a test asks for hundreds of texts. */
static uint64_t hash_of(const std::string &text, uint64_t h)
{
    for (size_t i = 0; i < text.size(); i += sizeof h) {
        uint64_t word = 0;
        const size_t rest = text.size() - i;
        memcpy(&word, text.data() + i, rest < sizeof word ? rest : sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return (h ^ text.size()) * 0x9e3779b97f4a7c15u;
}

/* ---- the API ---- */
NVRTC_API nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return SUCCESS;
}
extern "C" __attribute__((visibility("default"))) const char *nvrtcGetErrorString(int result)
{
    static const char *const names[] = {"NVRTC_SUCCESS",
                                        "NVRTC_ERROR_OUT_OF_MEMORY",
                                        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                        "NVRTC_ERROR_INVALID_INPUT",
                                        "NVRTC_ERROR_INVALID_PROGRAM",
                                        "NVRTC_ERROR_INVALID_OPTION",
                                        "NVRTC_ERROR_COMPILATION"};
    return result >= SUCCESS && result <= COMPILATION ? names[result] : "NVRTC_ERROR unknown";
}
NVRTC_API nvrtcCreateProgram(program **out, const char *source, const char *name, int n,
                             const char *const *texts, const char *const *names)
{
    if (!out || !source || n < 0)
        return INVALID_INPUT;
    *out = new program;
    (*out)->name = name ? name : "default_program";
    (*out)->source = source;
    for (int i = 0; i < n; i++)
        (*out)->headers.emplace_back(names[i], texts[i]);
    return SUCCESS;
}
NVRTC_API nvrtcDestroyProgram(program **p)
{
    if (!p || !*p)
        return INVALID_PROGRAM;
    delete *p;
    *p = nullptr;
    return SUCCESS;
}

/* Options of NVRTC as those of the compiler; false: one that the fake does not know. */
static bool translate(int n, const char *const *options, std::vector<std::string> *out,
                      std::string *log)
{
    static const char *const ignored[] = {"--gpu-architecture=",
                                          "-arch=",
                                          "--std=c++17",
                                          "-std=c++17",
                                          "-default-device",
                                          "--device-as-default-execution-space",
                                          "-dopt=",
                                          "--dopt=",
                                          "-lineinfo",
                                          "--generate-line-info",
                                          "-w",
                                          "--disable-warnings",
                                          "--fmad=",
                                          "-fmad=",
                                          "--Werror",
                                          "--restrict",
                                          "-restrict"};
    for (int i = 0; i < n; i++) {
        const std::string o = options[i];
        bool known = false;
        if (o.compare(0, 2, "-D") == 0 || o.compare(0, 2, "-I") == 0) {
            out->push_back(o);
            known = true;
        }
        for (const char *word : ignored)
            known |= o.compare(0, strlen(word), word) == 0;
        if (!known) {
            *log = "fake nvrtc: it does not know the option " + o + "\n";
            return false;
        }
    }
    return true;
}

static std::string beside_library(const char *name)
{
    Dl_info info;
    if (!dladdr(reinterpret_cast<void *>(beside_library), &info))
        return "/tmp";
    const std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/')) + "/../" + name;
}
static std::string cache_folder()
{
    const char *set = getenv("FAKE_NVRTC_CACHE");
    return set ? set : beside_library("cache");
}

/* The program's headers that its text includes, and those that these include. */
static std::map<std::string, std::string> included(const program &p)
{
    std::map<std::string, std::string> all;
    std::vector<const std::string *> open = {&p.source};
    while (!open.empty()) {
        const std::string &text = *open.back();
        open.pop_back();
        for (const auto &h : p.headers)
            if (!all.count(h.first) &&
                text.find("#include \"" + h.first + "\"") != std::string::npos) {
                all[h.first] = h.second;
                open.push_back(&h.second);
            }
    }
    return all;
}

static bool is_newer(const struct stat &than, const std::string &path)
{
    struct stat is;
    return stat(path.c_str(), &is) || is.st_mtim.tv_sec > than.st_mtim.tv_sec ||
           (is.st_mtim.tv_sec == than.st_mtim.tv_sec && is.st_mtim.tv_nsec > than.st_mtim.tv_nsec);
}

/* The image that the makefile made of the file of this name, if the file and what it includes
 * are the program, and older. */
static std::string built_image(const program &p, const std::map<std::string, std::string> &headers)
{
    const std::string image = beside_library("kernels/") + p.name + ".so",
                      sources = FAKE_INCLUDE "/../../plugins/backends/cuda/kernels/";
    struct stat built;
    if (stat(image.c_str(), &built) || is_newer(built, FAKE_INCLUDE "/emulator.h") ||
        is_newer(built, sources + p.name + ".cu") ||
        read_file(sources + p.name + ".cu") != p.source)
        return "";
    for (const auto &h : headers)
        if (is_newer(built, sources + h.first) || read_file(sources + h.first) != h.second)
            return "";
    return read_file(image);
}

/* Runs the compiler; true: it made the file. Its messages go to *log. */
static bool compile(const std::string &folder, const program &p,
                    const std::vector<std::string> &options, std::string *log)
{
    std::vector<std::string> words;
    std::istringstream compiler(FAKE_IMAGE_COMPILER);
    for (std::string w; compiler >> w;)
        words.push_back(w);
    words.insert(words.end(), options.begin(), options.end());
    for (const char *w :
         {"-O1", "-w", "-I.", "-I" FAKE_INCLUDE, "-x", "c++", "program.cu", "-o", "program.so"})
        words.push_back(w);
    std::vector<char *> argv;
    for (std::string &w : words)
        argv.push_back(&w[0]);
    argv.push_back(nullptr);
    for (const auto &h : p.headers)
        if (!write_file(folder + "/" + h.first, h.second))
            *log = "fake nvrtc: cannot write " + h.first;
    write_file(folder + "/program.cu", "#line 1 \"" + p.name + "\"\n" + p.source);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, (folder + "/log").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0644);
    pid_t child;
    int status = -1;
    const bool started = !posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (started)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            continue;
    *log +=
        started ? read_file(folder + "/log") : std::string("fake nvrtc: cannot start ") + argv[0];
    return started && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

NVRTC_API nvrtcCompileProgram(program *p, int n, const char *const *options)
{
    std::vector<std::string> words;
    if (!p)
        return INVALID_PROGRAM;
    p->log.clear();
    if (!translate(n, options, &words, &p->log))
        return INVALID_OPTION;
    const std::map<std::string, std::string> headers = included(*p);
    if (words.empty() && !(p->cubin = built_image(*p, headers)).empty())
        return SUCCESS;
    uint64_t h = hash_of(p->source, 0xcbf29ce484222325u);
    for (const auto &header : headers)
        h = hash_of(header.second, hash_of(header.first, h));
    for (const std::string &w : words)
        h = hash_of(w, h);
    h = hash_of(read_file(FAKE_INCLUDE "/emulator.h"),
                hash_of(FAKE_IMAGE_COMPILER " " __VERSION__, hash_of(p->name, h)));
    const std::string folder = cache_folder();
    char name[40];
    snprintf(name, sizeof name, "/%016llx.so", static_cast<unsigned long long>(h));
    p->cubin = read_file(folder + name);
    if (!p->cubin.empty())
        return SUCCESS;
    mkdir(folder.c_str(), 0777);
    std::string work = folder + "/work.XXXXXX";
    if (!mkdtemp(&work[0])) {
        p->log = "fake nvrtc: cannot make a folder in " + folder;
        return COMPILATION;
    }
    const bool ok = compile(work, *p, words, &p->log);
    if (ok) {
        p->cubin = read_file(work + "/program.so");
        rename((work + "/program.so").c_str(), (folder + name).c_str());
    }
    std::set<std::string> rest = {"program.cu", "program.so", "log"};
    for (const auto &header : p->headers)
        rest.insert(header.first);
    for (const std::string &file : rest)
        unlink((work + "/" + file).c_str());
    rmdir(work.c_str());
    return ok ? SUCCESS : COMPILATION;
}

static int get_size(const program *p, const std::string program::*text, size_t extra, size_t *out)
{
    if (!p || !out)
        return p ? INVALID_INPUT : INVALID_PROGRAM;
    *out = (p->*text).size() + extra;
    return SUCCESS;
}
static int get_text(const program *p, const std::string program::*text, size_t extra, char *out)
{
    if (!p || !out)
        return p ? INVALID_INPUT : INVALID_PROGRAM;
    memcpy(out, (p->*text).c_str(), (p->*text).size() + extra);
    return SUCCESS;
}
NVRTC_API nvrtcGetCUBINSize(const program *p, size_t *out)
{
    return get_size(p, &program::cubin, 0, out);
}
NVRTC_API nvrtcGetCUBIN(const program *p, char *out)
{
    return get_text(p, &program::cubin, 0, out);
}
NVRTC_API nvrtcGetPTXSize(const program *p,
                          size_t *out) /* the same image; as PTX it ends with a zero */
{
    return get_size(p, &program::cubin, 1, out);
}
NVRTC_API nvrtcGetPTX(const program *p, char *out)
{
    return get_text(p, &program::cubin, 1, out);
}
NVRTC_API nvrtcGetProgramLogSize(const program *p, size_t *out)
{
    return get_size(p, &program::log, 1, out);
}
NVRTC_API nvrtcGetProgramLog(const program *p, char *out)
{
    return get_text(p, &program::log, 1, out);
}
NVRTC_API nvrtcGetNumSupportedArchs(int *n)
{
    *n = 12;
    return SUCCESS;
}
NVRTC_API nvrtcGetSupportedArchs(int *out)
{
    static const int archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
    memcpy(out, archs, sizeof archs);
    return SUCCESS;
}
