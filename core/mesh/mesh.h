/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MESH_H
#define TT_MESH_H
#include "base/base.h"
#include <ttrun/train_spec.h>

/* core/mesh: atoms, axes, placements, boxes, canonical placement, lowering (rules R2, R3). Pure
 * arithmetic: no processes. Agrees with the executable specification on every vector of
 * tests/golden/placement.json. */

#define TT_MAX_ATOMS 16
/* An atom of a dim's list: its number, and how it cuts. Turned by n, the rank at coordinate c of
 * the atom has part (c + n) mod its size: what a ring has after n steps. */
#define TT_LOOSE 0x80u /* this cut ignores the unit (FSDP) */
#define TT_ATOM(a) ((a)&0x7fu)
#define TT_TURN(a) ((unsigned)(a) >> 8)
#define TT_TURNED(a, n) ((uint16_t)(((a)&0xffu) | (unsigned)(n) << 8))
#define TT_MAX_TURN 255 /* an atom that is turned has at most one more ranks */
#define TT_MAX_PIECES (TT_MAX_TURN + 1)

/* How a global tensor is stored: per dim an ordered list of atoms, major first; partial: a set of
 * atoms, all of one kind; atoms in neither: replicated. memcmp-comparable: unused bytes are zero.
 */
typedef struct tt_placement {
    uint8_t n[TT_MAX_DIMS];                   /* atoms on each dim */
    uint16_t atom[TT_MAX_DIMS][TT_MAX_ATOMS]; /* | TT_LOOSE, TT_TURNED */
    uint16_t partial;                         /* bit a: atom a     */
    uint16_t partial_max;                     /* 1: max, 0: sum; 0 when partial is 0 */
} tt_placement;

typedef struct tt_atom_list {
    uint8_t n;
    uint16_t atom[TT_MAX_ATOMS];
} tt_atom_list;

typedef struct tt_axis {
    const char *name; /* "dp_shard"; axes may overlap (dense and expert view) */
    tt_atom_list atoms;
} tt_axis;

/* Ordered atoms; their product is the world. The pipeline axis "pp", where there is one, is the
 * first atom; stages, not placements, use it. Atoms of size 1 do not exist. */
typedef struct tt_mesh {
    int n_atoms;
    const char *atom_name[TT_MAX_ATOMS];
    int32_t atom_size[TT_MAX_ATOMS];
    int n_axes;
    tt_axis axes[16];
    int32_t world;
} tt_mesh;

typedef struct tt_mesh_degrees {
    int32_t pp, dp_replicate, dp_shard, cp, tp, ep; /* dp_shard -1 = what is left; others >= 1 */
    int32_t lines; /* of a data rank's micro-batch; 0 = not known */
} tt_mesh_degrees;

/* From torchtitan's degrees: order pp, dp_replicate, dp_shard, cp, tp; tp split so that
 * gcd(kv_heads, tp) is a prefix of its atoms (kv_heads 0 = no split), cp so that gcd(lines, cp) is
 * (without ep): that much of it takes whole lines, and only the rest cuts them. An error names all
 * degrees. Writes the resolved dp_shard back. */
tt_status tt_mesh_make(tt_mesh_degrees *d, int32_t world, int64_t kv_heads, tt_arena *a,
                       tt_mesh *out, tt_error *err);
/* From explicit atoms and axes, for tests: sizes 1 are dropped from the mesh and from every axis.
 */
tt_status tt_mesh_make_atoms(const char *const *names, const int32_t *sizes, int n,
                             const tt_axis *axes_by_input_index, int n_axes, tt_arena *a,
                             tt_mesh *out, tt_error *err);
const tt_axis *tt_mesh_axis(const tt_mesh *m,
                            const char *name); /* NULL = no such axis or all of size 1 */
/* "dp_shard cp tp": an axis that is split (tp0 tp1) by its own name where it stands whole. */
void tt_mesh_print_axes(const tt_mesh *m, const tt_atom_list *atoms, char *text, size_t size);
int tt_mesh_degree(const tt_mesh *m, const tt_atom_list *atoms); /* product; loose bits ignored */
int tt_mesh_degree_mask(const tt_mesh *m, uint16_t atoms);
void tt_mesh_coords(const tt_mesh *m, int rank, int32_t coords[TT_MAX_ATOMS]);
int tt_mesh_rank(const tt_mesh *m, const int32_t coords[TT_MAX_ATOMS]);
/* The ranks that differ from `rank` only in these atoms, in the order of the list's lexicographic
 * coordinates; returns n. */
int tt_mesh_group(const tt_mesh *m, int rank, const tt_atom_list *atoms, int *ranks);
/* The atoms of a set, sorted by name: the order in which reductions and prints name them. */
tt_atom_list tt_mesh_atoms_by_name(const tt_mesh *m, uint16_t atoms);

/* ---- placements ---- */
bool tt_placement_equal(const tt_placement *a, const tt_placement *b);
uint16_t tt_placement_shard_atoms(const tt_placement *p, int n_dims);
/* "{dp_shard,cp},{tp} P(tp)"; "{},{}" replicated; "Pmax(tp)"; "{cp+1}" turned */
void tt_placement_print(const tt_mesh *m, const tt_placement *p, int n_dims, char *text,
                        size_t size);
tt_status tt_placement_check(const tt_mesh *m, const tt_placement *p, int n_dims,
                             tt_error *err); /* no atom twice */

/* ---- boxes (the one box function): cut ATOM BY ATOM, chunk = ceil(padded parent / n) up to the
 * unit, clipped ---- */
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
    bool sequence_parallel; /* false: tp is taken out of "tokens" */
} tt_label_table;
void tt_label_table_default(
    tt_label_table *t); /* experts, heads, kv_heads, ffn, vocab, tokens (R3) */
tt_status tt_label_table_parse(const tt_label_rule *rules, size_t n, tt_label_table *out,
                               tt_error *err);

/* Atoms of each of n letters of an op's iteration space; dims[i] is letter i's first dim. */
tt_status tt_canon(const tt_mesh *m, const tt_label_table *t, const tt_dim *dims, int n,
                   tt_atom_list *out, tt_error *err);
/* Longest prefix of atoms whose product divides count. */
int tt_prefix_dividing(const tt_mesh *m, const tt_atom_list *atoms, int64_t count);
/* A parameter's compute and storage placements: storage adds the FSDP atoms (dp_shard, cp) as minor
 * atoms of one dim. */
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
    uint16_t in_turn[16], out_turn[4]; /* t+2: turned by two steps */
    uint32_t whole;                    /* bit letter */
    int n_groups;
    struct {
        int8_t x, first, rest; /* x=(first rest) */
    } groups[4];
} tt_rule;
/* The turn of each atom of `list` from `first` on after that many steps of their ring, the last
 * fastest. */
void tt_turn_atoms(const tt_mesh *m, int turn, int first, uint16_t *list, int n);
/* `*` expands to the dims of that operand (in_ranks, out_ranks: number of dims of each). */
tt_status tt_rule_parse(const char *text, const int *in_ranks, int n_in, const int *out_ranks,
                        int n_out, tt_rule *out, tt_error *err);

/* ---- lowering: (from, to) → named single-kind steps, reduce before gather, RS before AR ---- */
typedef enum tt_step_kind {
    TT_STEP_ALL_GATHER,
    TT_STEP_REDUCE_SCATTER,
    TT_STEP_ALL_REDUCE,
    TT_STEP_ALL_TO_ALL,
    TT_STEP_SHIFT, /* parts change ranks: every rank gives all it has to one other */
    /* on the rank alone: */
    TT_STEP_SLICE,
    TT_STEP_MASK,
    TT_STEP_JOIN, /* pieces, one for each turn of the atoms, are the whole */
    TT_STEP_SUM   /* what each member gave to this rank's piece, one for each turn, is its sum: in
                     member order */
} tt_step_kind;
static inline bool tt_step_is_local(tt_step_kind k)
{
    return k >= TT_STEP_SLICE;
}
typedef struct tt_lower_step {
    tt_step_kind kind;
    tt_atom_list atoms; /* loose bits stripped */
    tt_placement src, dst;
    double cost; /* elements a rank sends, padded sizes */
} tt_lower_step;
#define TT_MAX_STEPS 24
int tt_lower(const tt_mesh *m, const tt_dim *dims, int n_dims, const tt_placement *from,
             const tt_placement *to, tt_lower_step steps[TT_MAX_STEPS]);
double tt_lower_cost(const tt_mesh *m, const tt_dim *dims, int n_dims, const tt_placement *from,
                     const tt_placement *to);
const char *tt_step_kind_name(tt_step_kind k); /* "all_gather" … */

#endif
