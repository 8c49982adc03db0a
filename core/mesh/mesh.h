/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MESH_H
#define TT_MESH_H
#include "base/base.h"
#include <ttrun/train_spec.h>

/* core/mesh: atoms, axes, placements, boxes, canonical placement, lowering (rules R2, R3). Pure
 * arithmetic: no processes. Agrees with the executable specification on every vector of
 * tests/golden/placement.json. */

#define TT_MAX_ATOMS 16
/* An entry of a dim's list of atoms: the atom's number and how it cuts the dim. Where it is
 * ring-shifted by n, the rank at coordinate c holds part (c + n) mod the atom's size, as in a ring
 * after n steps. */
#define TT_IGNORE_UNIT 0x80u /* bit: this cut ignores the dim's unit (FSDP) */
#define TT_ATOM(a) ((a)&0x7fu)
#define TT_SHIFT(a) ((unsigned)(a) >> 8)
#define TT_SHIFT_BITS 0xff00u /* bits: steps of a ring, TT_SHIFTED */
#define TT_SHIFTED(a, n) ((uint16_t)(((a)&0xffu) | (unsigned)(n) << 8))
#define TT_MAX_SHIFT 255 /* largest shift, so a shifted atom has at most 256 ranks */
#define TT_MAX_PIECES (TT_MAX_SHIFT + 1)

/* How the ranks store a global tensor: for each dim the ordered list of atoms that cut it, major
 * first, and the set of atoms over which it is partial, all of one kind. Over all other atoms it is
 * replicated. Unused bytes are zero, so memcmp compares two placements. */
typedef struct tt_placement {
    uint8_t n[TT_MAX_DIMS];                   /* atoms on each dim */
    uint16_t atom[TT_MAX_DIMS][TT_MAX_ATOMS]; /* atom number | TT_IGNORE_UNIT, with TT_SHIFTED */
    uint16_t partial;                         /* bit a: partial over atom a */
    uint16_t partial_max;                     /* 1: max, 0: sum; 0 if partial is 0 */
} tt_placement;

typedef struct tt_atom_list {
    uint8_t n;
    uint16_t atom[TT_MAX_ATOMS];
} tt_atom_list;

typedef struct tt_axis {
    const char *name; /* "dp_shard"; axes may share atoms (dp_shard and ep) */
    tt_atom_list atoms;
} tt_axis;

/* A mesh is an ordered list of atoms; the product of their sizes is the number of ranks. If there
 * is a pipeline axis "pp", it is the first atom; stages use it, placements do not. No atom has size
 * 1. */
typedef struct tt_mesh {
    int n_atoms;
    const char *atom_name[TT_MAX_ATOMS];
    int32_t atom_size[TT_MAX_ATOMS];
    int n_axes;
    tt_axis axes[16];
    int32_t world;
} tt_mesh;

typedef struct tt_mesh_degrees {
    int32_t pp, dp_replicate, dp_shard, cp, tp, ep; /* >= 1; dp_shard -1 = all remaining ranks */
    int32_t sequences; /* per data rank and micro-batch; 0 = not known */
} tt_mesh_degrees;

/* Makes a mesh from torchtitan's degrees, in the order pp, dp_replicate, dp_shard, cp, tp. tp gets
 * an atom of size gcd(kv_heads, tp) first, which cuts the kv heads (kv_heads 0 = no split). Without
 * ep, cp gets an atom of size gcd(sequences, cp) first: it distributes whole sequences, and only the
 * rest of cp cuts them. Writes the resolved dp_shard back. An error names all degrees. */
tt_status tt_mesh_make(tt_mesh_degrees *d, int32_t world, int64_t kv_heads, tt_arena *a,
                       tt_mesh *out, tt_error *err);
/* Makes a mesh from explicit atoms and axes, for tests; drops atoms of size 1 everywhere. */
tt_status tt_mesh_make_atoms(const char *const *names, const int32_t *sizes, int n,
                             const tt_axis *axes_by_input_index, int n_axes, tt_arena *a,
                             tt_mesh *out, tt_error *err);
const tt_axis *tt_mesh_axis(const tt_mesh *m,
                            const char *name); /* NULL = no such axis, or its degree is 1 */
/* Writes "dp_shard cp tp"; all atoms of an axis in sequence (tp0 tp1) appear as the axis's name. */
void tt_mesh_print_axes(const tt_mesh *m, const tt_atom_list *atoms, char *text, size_t size);
/* An axis whose ranks have the same weights and other data: dp_replicate if there are replicas, else dp_shard;
 * NULL: there is one data rank. */
const tt_axis *tt_mesh_data_axis(const tt_mesh *m);
int tt_mesh_degree(const tt_mesh *m, const tt_atom_list *atoms); /* the product of their sizes */
int tt_mesh_degree_mask(const tt_mesh *m, uint16_t atoms);
void tt_mesh_coords(const tt_mesh *m, int rank, int32_t coords[TT_MAX_ATOMS]);
int tt_mesh_rank(const tt_mesh *m, const int32_t coords[TT_MAX_ATOMS]);
/* Writes the ranks that differ from `rank` only in the coordinates of these atoms, ordered by these
 * coordinates with the list's first atom slowest; returns their number. */
int tt_mesh_group(const tt_mesh *m, int rank, const tt_atom_list *atoms, int *ranks);
/* The atoms of a set sorted by name, which is their order in reductions and in printed text. */
tt_atom_list tt_mesh_atoms_by_name(const tt_mesh *m, uint16_t atoms);

/* ---- placements ---- */
bool tt_placement_equal(const tt_placement *a, const tt_placement *b);
/* Are all dims sharded alike? Pending reductions may differ. */
bool tt_placement_same_shards(const tt_placement *a, const tt_placement *b);
uint16_t tt_atoms_mask(const uint16_t *atoms, int n); /* bit a: atom a is one of them */
uint16_t tt_atom_list_mask(const tt_atom_list *l);
uint16_t tt_placement_shard_atoms(const tt_placement *p, int n_dims);
/* Writes "{dp_shard,cp},{tp} P(tp)"; "{},{}" = replicated; "Pmax(tp)" = partial by maximum;
 * "{cp+1}" = shifted by one rank. */
void tt_placement_print(const tt_mesh *m, const tt_placement *p, int n_dims, char *text,
                        size_t size);
tt_status tt_placement_check(const tt_mesh *m, const tt_placement *p, int n_dims,
                             tt_error *err); /* no atom twice */

/* ---- boxes: each atom cuts the part that the atoms before it left, into chunks of
 * ceil(padded size / n) rounded up to the unit; the result is clipped to the dim ---- */
int64_t tt_chunk(const tt_mesh *m, const tt_dim *d, const uint16_t *atoms,
                 int n); /* largest local size */
void tt_dim_box(const tt_mesh *m, const tt_dim *d, const uint16_t *atoms, int n,
                const int32_t *coords, int64_t *begin, int64_t *end);
typedef struct tt_box {
    int64_t begin[TT_MAX_DIMS], end[TT_MAX_DIMS];
} tt_box;
void tt_box_of(const tt_mesh *m, const tt_dim *dims, int n_dims, const tt_placement *p,
               const int32_t *coords, tt_box *out);
int64_t tt_box_numel(const tt_box *b, int n_dims);
/* Walks the elements of `both`, a box inside the boxes `from` and `to`, each of which has a
 * row-major array. fn gets runs of n elements that are contiguous in both arrays, with the index of
 * the first one in each array. */
typedef void (*tt_box_run_fn)(void *user, int64_t from, int64_t to, int64_t n);
void tt_box_walk(const tt_box *both, const tt_box *from, const tt_box *to, int n_dims,
                 tt_box_run_fn fn, void *user);
/* Copies these elements, of `size` bytes each, from one array to the other. */
void tt_box_copy(const tt_box *both, const void *from, const tt_box *from_box, void *to,
                 const tt_box *to_box, int n_dims, size_t size);
tt_box tt_box_of_tensor(const tt_tensor *t); /* a rank's part, in the global tensor */
bool tt_box_intersect(const tt_box *a, const tt_box *b, int n_dims,
                      tt_box *out); /* false = empty */
int64_t tt_max_local_numel(const tt_mesh *m, const tt_dim *dims, int n_dims, const tt_placement *p);

/* ---- canonical placement from labels (R3) ---- */
typedef enum tt_policy {
    TT_POLICY_ERROR,
    TT_POLICY_PAD,
    TT_POLICY_REPLICATE,
    TT_POLICY_PREFIX
} tt_policy;
typedef struct tt_label_entry {
    const char *label;
    const char *axes[8];
    int n_axes;
    tt_policy policy;
} tt_label_entry;
typedef struct tt_label_table {
    tt_label_entry entries[32];
    int n;
    bool sequence_parallel; /* false: the atoms of tp do not cut dims labelled "tokens" */
} tt_label_table;
void tt_label_table_default(
    tt_label_table *t); /* experts, heads, kv_heads, ffn, vocab, tokens (R3) */
tt_status tt_label_table_parse(const tt_label_rule *rules, size_t n, tt_label_table *out,
                               tt_error *err);

/* The atoms that cut each of an op's n letters; dims[i] is the first dim with letter i. */
tt_status tt_canon(const tt_mesh *m, const tt_label_table *t, const tt_dim *dims, int n,
                   tt_atom_list *out, tt_error *err);
/* The length of the longest prefix of atoms whose product divides count. */
int tt_prefix_dividing(const tt_mesh *m, const tt_atom_list *atoms, int64_t count);
/* A parameter's placements when it is computed with and when it is stored: storage adds FSDP's
 * atoms (dp_shard, cp) as minor atoms of one dim. */
tt_status tt_param_placements(const tt_mesh *m, const tt_label_table *t, const tt_dim *dims,
                              int n_dims, tt_placement *compute, tt_placement *storage,
                              tt_error *err);

/* ---- sharding rules (R5), parsed; grammar in <ttrun/op.h> ---- */
#define TT_MAX_LETTERS 24
typedef struct tt_rule {
    int n_letters;
    char name[TT_MAX_LETTERS][12];
    int n_in, n_out;
    int8_t in[16][TT_MAX_DIMS], out[4][TT_MAX_DIMS]; /* letter of each dim */
    int8_t n_in_dims[16], n_out_dims[4];
    uint16_t in_shift[16], out_shift[4]; /* t+2: shifted by two steps */
    uint32_t whole;                      /* bit x: no atom may cut letter x */
    int n_groups;
    struct {
        int8_t x, first, rest; /* x=(first rest) */
    } groups[4];
} tt_rule;
/* Sets the shift of each atom of `list` from `first` on, after `steps` steps along the ring that
 * these atoms form, the last one fastest. */
void tt_shift_atoms(const tt_mesh *m, int steps, int first, uint16_t *list, int n);
/* Parses a rule; `*` stands for all dims of that operand. in_ranks, out_ranks: dims per operand. */
tt_status tt_rule_parse(const char *text, const int *in_ranks, int n_in, const int *out_ranks,
                        int n_out, tt_rule *out, tt_error *err);

/* ---- lowering: a redistribute as a list of collectives and local steps (lower.c) ---- */
typedef enum tt_step_kind {
    TT_STEP_ALL_GATHER,
    TT_STEP_REDUCE_SCATTER,
    TT_STEP_ALL_REDUCE,
    TT_STEP_ALL_TO_ALL,
    TT_STEP_SHIFT, /* every rank sends its whole part to one other rank of a ring */
    /* the following are local to a rank: */
    TT_STEP_SLICE,
    TT_STEP_MASK, /* replicated → partial */
    TT_STEP_JOIN, /* joins the pieces, one per shift of the atoms, to the whole */
    TT_STEP_SUM   /* sums the members' contributions to this rank's piece, one per shift of the
                     atoms, in member order */
} tt_step_kind;
static inline bool tt_step_is_local(tt_step_kind k)
{
    return k >= TT_STEP_SLICE;
}
typedef struct tt_lower_step {
    tt_step_kind kind;
    tt_atom_list atoms; /* without their TT_IGNORE_UNIT bits */
    tt_placement src, dst;
    double cost; /* elements that a rank sends, counted with padding */
} tt_lower_step;
#define TT_MAX_STEPS 24
int tt_lower(const tt_mesh *m, const tt_dim *dims, int n_dims, const tt_placement *from,
             const tt_placement *to, tt_lower_step steps[TT_MAX_STEPS]);
double tt_lower_cost(const tt_mesh *m, const tt_dim *dims, int n_dims, const tt_placement *from,
                     const tt_placement *to);
const char *tt_step_kind_name(tt_step_kind k); /* "all_gather" … */

#endif
