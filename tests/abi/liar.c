/* SPDX-License-Identifier: Apache-2.0 */
/* A small truthful plugin, which -DLIE_… turns into one that lies in one place. The tests of this
 * folder build each variant into a temporary folder; without a flag it must load. */
#include <ttrun/kernels.h>
#include <ttrun/lr_scheduler.h>
#include <ttrun/model.h>
#include <ttrun/op.h>
#include <ttrun/optimizer.h>
#include <ttrun/train_spec.h>

#ifndef NAME
#define NAME "liar"
#endif
#ifndef LIE_MAGIC
#define LIE_MAGIC TT_PLUGIN_MAGIC
#endif
#ifndef LIE_MAJOR
#define LIE_MAJOR TT_ABI_MAJOR
#endif
#ifndef LIE_MINOR
#define LIE_MINOR TT_ABI_MINOR
#endif
#ifndef LIE_PLUGIN_SIZE
#define LIE_PLUGIN_SIZE sizeof(tt_plugin)
#endif
#ifndef LIE_PLUGIN_NAME
#define LIE_PLUGIN_NAME "liar"
#endif
#ifndef LIE_VERSION
#define LIE_VERSION "1.0"
#endif
#ifndef LIE_COMPONENTS
#define LIE_COMPONENTS components
#endif
#ifndef LIE_N_COMPONENTS
#define LIE_N_COMPONENTS TT_COUNT(components)
#endif
#ifndef LIE_COMPONENT_SIZE
#define LIE_COMPONENT_SIZE sizeof(tt_component)
#endif
#ifndef LIE_STRUCT_SIZE
#define LIE_STRUCT_SIZE sizeof(tt_component)
#endif
#ifndef LIE_KIND
#define LIE_KIND TT_KIND_LR_SCHEDULER
#endif
#ifndef LIE_DOC
#define LIE_DOC "a schedule for tests"
#endif
#ifndef LIE_OPTIONS
#define LIE_OPTIONS options
#endif
#ifndef LIE_N_OPTIONS
#define LIE_N_OPTIONS TT_COUNT(options)
#endif
#ifndef LIE_OPTION_SIZE
#define LIE_OPTION_SIZE sizeof(tt_option)
#endif
#ifndef LIE_CONFIG_SIZE
#define LIE_CONFIG_SIZE sizeof(config)
#endif
#ifndef LIE_VTABLE
#define LIE_VTABLE &vt
#endif
#ifndef LIE_VT_SIZE
#define LIE_VT_SIZE sizeof(vt)
#endif
#ifndef LIE_FACTOR
#define LIE_FACTOR factor
#endif
#ifndef LIE_EXTENSION
#define LIE_EXTENSION NULL
#endif
#ifndef LIE_RULE
#define LIE_RULE "ffn", "tp", NULL
#endif
#ifndef LIE_SPEC
#define LIE_SPEC .model = "llama3"
#endif
/* the table's row of the second option */
#ifndef LIE_ROW
#define LIE_ROW                                                                                    \
    "power", "exponent", TT_OPT_FLOAT, offsetof(config, power), "1.0", 0.0, 8.0, NULL, 0, NULL
#endif

typedef struct config {
    int64_t steps;
    double power;
    const char *mode;
} config;

static const tt_option options[] = {
    {"steps", "steps of the ramp", TT_OPT_INT, offsetof(config, steps), "10",                            1,                                     1000,             NULL, 0,
     "n_steps"                                                                                                                                                                   },
    {LIE_ROW},
    {"mode",   "how",                    TT_OPT_ENUM,                         offsetof(config,                                 mode),         "\"up\"", 0, 0, "up|down",    0,    NULL},
};

#ifdef WITH_CRASH /* before main, which no plugin should */
__attribute__((constructor)) static void crash(void)
{
    __builtin_trap();
}
#endif

#ifdef WITH_UNDEFINED
double function_no_library_has(double x);
#else
static double function_no_library_has(double x)
{
    return x;
}
#endif

double factor(const void *cfg, int64_t step, int64_t total);
double factor(const void *cfg, int64_t step, int64_t total)
{
    const config *c = cfg;
    return function_no_library_has((double)(step + 1) / (double)(total + c->steps));
}

#if defined(WITH_MODEL)
static void describe(const void *cfg, tt_builder *b)
{
    (void)cfg;
    (void)b;
}
static int64_t vocab_size(const void *cfg)
{
    (void)cfg;
    return 1;
}
#ifndef LIE_FLAVOR
#define LIE_FLAVOR "small", "{\"steps\": 2}"
#endif
static const tt_flavor flavors[] = {{LIE_FLAVOR}};
#ifndef LIE_N_FLAVORS
#define LIE_N_FLAVORS 1
#endif
static const tt_model_vt vt = {sizeof(tt_model_vt), flavors,   LIE_N_FLAVORS, NULL, describe,
                               vocab_size,          vocab_size};
#elif defined(WITH_OPTIMIZER) /* its options lack lr */
static void describe_update(const void *cfg, tt_builder *b, const tt_update *u)
{
    (void)cfg;
    (void)b;
    (void)u;
}
static const tt_optimizer_vt vt = {sizeof(tt_optimizer_vt), describe_update};
#elif defined(WITH_OP)
#ifndef LIE_OP_SIZE
#define LIE_OP_SIZE sizeof(tt_op_def)
#endif
#ifndef LIE_OP /* designated initializers */
#define LIE_OP .n_out = 1
#endif
static tt_status infer(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    (void)err;
    out[0] = *q->in[0];
    return TT_OK;
}
static const tt_op_def def = {.struct_size = LIE_OP_SIZE,
                              .name = "liar",
                              .doc = "an op for tests",
                              .rule = "t d -> t d",
                              .infer = infer,
                              .n_out = 1,
                              LIE_OP};
#ifndef LIE_DEF
#define LIE_DEF &def
#endif
static const tt_op_vt vt = {sizeof(tt_op_vt), LIE_DEF};
#elif defined(WITH_KERNELS)
static void run(const tt_kernel_call *call)
{
    (void)call;
}
#ifndef LIE_KERNEL
#define LIE_KERNEL .op = "far"
#endif
static const tt_kernel kernels[] = {
    {sizeof(tt_kernel), "near",     run       },
    { .struct_size = sizeof(tt_kernel),      .op = "far", .run = run, LIE_KERNEL},
};
#ifndef LIE_KERNELS /* designated initializers */
#define LIE_KERNELS .n_kernels = 2
#endif
static const tt_kernels_vt vt = {.struct_size = sizeof(tt_kernels_vt),
                                 .backend = "cpu",
                                 .kernels = kernels,
                                 .n_kernels = 2,
                                 .kernel_size = sizeof(tt_kernel),
                                 LIE_KERNELS};
#elif defined(WITH_SPEC)
static const tt_label_rule rules[] = {{LIE_RULE}};
static const tt_train_spec_vt vt = {.struct_size = sizeof(tt_train_spec_vt),
                                    .model = "llama3",
                                    .rules = rules,
                                    .n_rules = 1,
                                    LIE_SPEC};
#else
static const tt_lr_scheduler_vt vt = {LIE_VT_SIZE, LIE_FACTOR};
#endif

#define ROW(kind, name)                                                                            \
    {                                                                                              \
        LIE_STRUCT_SIZE, kind, name, LIE_DOC, LIE_OPTIONS, LIE_N_OPTIONS, LIE_OPTION_SIZE,         \
            LIE_CONFIG_SIZE, LIE_VTABLE, LIE_EXTENSION                                             \
    }

static const tt_component components[] = {
    ROW(LIE_KIND, NAME),
#ifdef WITH_TWICE
    ROW(LIE_KIND, NAME),
#endif
#ifdef WITH_UNKNOWN_KIND
    {8, (tt_kind)99, (const char *)16, NULL, NULL, 7, 7, 7, NULL, NULL},
#endif
};

#ifdef WITHOUT_ENTRY
#define tt_plugin_entry another_name
#endif
#ifdef WITH_ENTRY_FUNCTION
TT_EXPORT int tt_plugin_entry(void);
TT_EXPORT int tt_plugin_entry(void)
{
    return components[0].name[0] + options[0].name[0];
}
#else
TT_EXPORT extern const tt_plugin tt_plugin_entry;
const tt_plugin tt_plugin_entry = {
    LIE_MAGIC,   LIE_MAJOR,    LIE_MINOR,      LIE_PLUGIN_SIZE,  LIE_PLUGIN_NAME,
    LIE_VERSION, "Apache-2.0", LIE_COMPONENTS, LIE_N_COMPONENTS, LIE_COMPONENT_SIZE};
#endif
