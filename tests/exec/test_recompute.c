/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/steps.h"
#include "tier.h"

/* Activation checkpointing changes no bit of losses, parameters and optimizer states: in every mode, on
 * every kind of mesh. */

enum { N_STEPS = 2 }; /* the second one reads what the first has updated */

#define AC "activation_checkpoint."
#define BUDGET(x) AC "mode budget " AC "memory_budget " #x

static const char *const modes[] = {
    AC "mode selective",
    AC "mode selective " AC "save_ops [\"linear\"]",
    AC "mode selective " AC "save_ops [\"attention\",\"mul\",\"redistribute\"]",
    AC "mode selective " AC "selective_ac_option 2",
    AC "mode full",
    BUDGET(0.85),
    BUDGET(0.5),
    BUDGET(0.2),
    BUDGET(0),
};

#define P "parallelism."
static const char *const meshes[] = {
    "",
    P "data_parallel_shard_degree 2",
    P "tensor_parallel_degree 2",
    P "tensor_parallel_degree 2 " P "enable_sequence_parallel false",
    P "pipeline_parallel_degree 2 " P "pipeline_parallel_schedule ZBVZeroBubble "
      "training.global_batch_size 8",
    P "pipeline_parallel_degree 2 " P "pipeline_parallel_schedule Interleaved1F1B "
      "training.global_batch_size 8",
    P "context_parallel_degree 2",
    P "context_parallel_degree 2 " P "context_parallel_rotate_method ring "
      "training.mixed_precision_param bfloat16",
    "training.mixed_precision_param bfloat16",
    "backend.name reference",
    "model.args.attention_dropout 0.3", /* its random numbers are drawn again */
    P "data_parallel_shard_degree 2 " P "fsdp_reshard_after_forward never "
      "training.global_batch_size 16",
    "training.mixed_precision_param float16", /* with a loss scale */
    P "tensor_parallel_degree 2 converters [{\"name\":\"lora\",\"rank\":2,\"dropout\":0.2}]",
    P "data_parallel_shard_degree 2 converters "
      "[{\"name\":\"float8\",\"recipe\":\"tensorwise\"}]",
    "converters [{\"name\":\"float8\",\"recipe\":\"rowwise\"}]",
};

static void compare(const char *mesh, const char *mode, const steps *kept)
{
    char text[600], what[700];
    steps again;
    snprintf(text, sizeof text, "%s%s%s", mesh, *mesh ? " " : "", mode);
    steps_run(text, N_STEPS, &again);
    snprintf(what, sizeof what, "\"%s\" and \"%s\"", mesh, text);
    steps_same_bits(kept, &again, what);
}

static void test_no_mode_changes_a_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        steps kept;
        steps_run(meshes[i], N_STEPS, &kept);
        for (size_t k = 0; k < TT_COUNT(modes); k++)
            if (in_tier(i, k, 3))
                compare(meshes[i], modes[k], &kept);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_mode_changes_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
