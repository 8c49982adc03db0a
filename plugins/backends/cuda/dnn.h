/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_DNN_H
#define TT_CUDA_DNN_H
#include "cuda.h"

/* cuDNN's backend API, versions 9.15.1 to 9.x, by prototypes of our own, and graphs of operations
 * made with it. tests/cuda/abi_dnn.c compares the numbers with NVIDIA's header.
 * Source: cuDNN's documentation, "Backend API" and "Graph API". */

/* cudnnBackendDescriptorType_t */
enum {
    DNN_POINTWISE = 0,
    DNN_ENGINE = 2,
    DNN_ENGINECFG = 3,
    DNN_ENGINEHEUR = 4,
    DNN_EXECUTION_PLAN = 5,
    DNN_OPERATION_POINTWISE = 13,
    DNN_OPERATIONGRAPH = 15,
    DNN_VARIANT_PACK = 16,
    DNN_TENSOR = 17,
    DNN_MATMUL = 18,
    DNN_OPERATION_MATMUL = 19,
    DNN_REDUCTION = 21,
    DNN_OPERATION_REDUCTION = 22,
    DNN_OPERATION_RESHAPE = 31,
    DNN_DEVICEPROP = 38
};
/* cudnnBackendAttributeName_t */
enum {
    DNN_ATTR_POINTWISE_MODE = 0,
    DNN_ATTR_POINTWISE_MATH_PREC = 1,
    DNN_ATTR_POINTWISE_AXIS = 9,
    DNN_ATTR_ENGINEHEUR_MODE = 200,
    DNN_ATTR_ENGINEHEUR_OPERATION_GRAPH = 201,
    DNN_ATTR_ENGINEHEUR_RESULTS = 202,
    DNN_ATTR_ENGINEHEUR_DEVICEPROP = 204,
    DNN_ATTR_ENGINECFG_ENGINE = 300,
    DNN_ATTR_PLAN_HANDLE = 400,
    DNN_ATTR_PLAN_ENGINE_CONFIG = 401,
    DNN_ATTR_PLAN_WORKSPACE_SIZE = 402,
    DNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR = 750,
    DNN_ATTR_OPERATION_POINTWISE_XDESC = 751,
    DNN_ATTR_OPERATION_POINTWISE_BDESC = 752,
    DNN_ATTR_OPERATION_POINTWISE_YDESC = 753,
    DNN_ATTR_OPERATION_POINTWISE_TDESC = 758,
    DNN_ATTR_OPERATIONGRAPH_HANDLE = 800,
    DNN_ATTR_OPERATIONGRAPH_OPS = 801,
    DNN_ATTR_TENSOR_BYTE_ALIGNMENT = 900,
    DNN_ATTR_TENSOR_DATA_TYPE = 901,
    DNN_ATTR_TENSOR_DIMENSIONS = 902,
    DNN_ATTR_TENSOR_STRIDES = 903,
    DNN_ATTR_TENSOR_UNIQUE_ID = 906,
    DNN_ATTR_TENSOR_IS_VIRTUAL = 907,
    DNN_ATTR_TENSOR_IS_BY_VALUE = 908,
    DNN_ATTR_PACK_UNIQUE_IDS = 1000,
    DNN_ATTR_PACK_DATA_POINTERS = 1001,
    DNN_ATTR_PACK_WORKSPACE = 1003,
    DNN_ATTR_ENGINE_NUMERICAL_NOTE = 1303,
    DNN_ATTR_MATMUL_COMP_TYPE = 1500,
    DNN_ATTR_OPERATION_MATMUL_ADESC = 1520,
    DNN_ATTR_OPERATION_MATMUL_BDESC = 1521,
    DNN_ATTR_OPERATION_MATMUL_CDESC = 1522,
    DNN_ATTR_OPERATION_MATMUL_DESC = 1523,
    DNN_ATTR_REDUCTION_OPERATOR = 1600,
    DNN_ATTR_REDUCTION_COMP_TYPE = 1601,
    DNN_ATTR_REDUCTION_IS_DETERMINISTIC = 1602,
    DNN_ATTR_OPERATION_REDUCTION_XDESC = 1610,
    DNN_ATTR_OPERATION_REDUCTION_YDESC = 1611,
    DNN_ATTR_OPERATION_REDUCTION_DESC = 1612,
    DNN_ATTR_OPERATION_RESHAPE_XDESC = 2200,
    DNN_ATTR_OPERATION_RESHAPE_YDESC = 2201,
    DNN_ATTR_DEVICEPROP_JSON = 2702
};
/* cudnnBackendAttributeType_t */
enum {
    DNN_TYPE_HANDLE = 0,
    DNN_TYPE_DATA_TYPE = 1,
    DNN_TYPE_BOOLEAN = 2,
    DNN_TYPE_INT64 = 3,
    DNN_TYPE_VOID_PTR = 6,
    DNN_TYPE_HEUR_MODE = 8,
    DNN_TYPE_NUMERICAL_NOTE = 11,
    DNN_TYPE_POINTWISE_MODE = 14,
    DNN_TYPE_DESCRIPTOR = 15,
    DNN_TYPE_REDUCTION_OPERATOR = 18,
    DNN_TYPE_CHAR = 24
};
/* cudnnDataType_t */
enum { DNN_F32 = 0, DNN_I32 = 4, DNN_BF16 = 9, DNN_BOOL = 11 };
/* cudnnPointwiseMode_t */
enum {
    DNN_ADD = 0,
    DNN_MUL = 1,
    DNN_DIV = 6,
    DNN_SUB = 9,
    DNN_EXP = 13,
    DNN_LOG = 15,
    DNN_IDENTITY = 21,
    DNN_GREATER = 302,
    DNN_GREATER_EQUAL = 303,
    DNN_INDEX = 501,
    DNN_SELECT = 601
};
/* cudnnReduceTensorOp_t, cudnnBackendHeurMode_t, cudnnBackendNumericalNote_t */
enum { DNN_SUM = 0, DNN_MAX = 3, DNN_HEUR_A = 3, DNN_NOTE_NONDETERMINISTIC = 4, DNN_N_NOTES = 10 };

/* The functions; 0 is success. */
typedef struct dnn_api {
    size_t (*cudnnGetVersion)(void); /* 91900 for 9.19.0 */
    const char *(*cudnnGetErrorString)(int status);
    void (*cudnnGetLastErrorString)(char *text, size_t size);
    int (*cudnnCreate)(void **handle);
    int (*cudnnDestroy)(void *handle);
    int (*cudnnSetStream)(void *handle, void *stream);
    int (*cudnnBackendCreateDescriptor)(int type, void **out);
    int (*cudnnBackendDestroyDescriptor)(void *d);
    int (*cudnnBackendFinalize)(void *d);
    int (*cudnnBackendSetAttribute)(void *d, int name, int type, int64_t n, const void *values);
    int (*cudnnBackendGetAttribute)(void *d, int name, int type, int64_t room, int64_t *n,
                                    void *values);
    int (*cudnnBackendExecute)(void *handle, void *plan, void *pack);
} dnn_api;

/* Of one rank. It is used by one thread at a time. */
typedef struct cuda_dnn {
    dnn_api api;
    void *handle;           /* NULL: there is no device */
    void *chip;             /* descriptor of the chip that is not here; NULL: there is a handle */
    struct dnn_plan *plans; /* attention_dnn.c */
} cuda_dnn;

/* ---- a graph that is being made; after a failure calls do nothing and return NULL ---- */
typedef struct dnn_graph {
    cuda_dnn *d;
    void *made[128], *ops[32];
    int n_made, n_ops;
    int64_t next; /* id of the next tensor that is inside the graph */
    tt_status status;
    tt_error *err;
} dnn_graph;

typedef struct dnn_shape {
    int64_t size[4], stride[4];
} dnn_shape;
void dnn_graph_start(dnn_graph *g, cuda_dnn *d, tt_error *err);
void dnn_graph_free(dnn_graph *g); /* plans made of it stay */
/* id > 0: an operand; 0: a value inside the graph. by_value: one f32 that the host gives. */
void *dnn_tensor(dnn_graph *g, int64_t id, int type, const dnn_shape *s);
void *dnn_value(dnn_graph *g, int64_t id);
/* y = mode(x, b); select: y = t ? x : b; index: y = the place of x's element in dim `axis`. b and t may be NULL. */
void dnn_pointwise(dnn_graph *g, int mode, int math, void *x, void *b, void *t, void *y,
                   int64_t axis);
void dnn_matmul(dnn_graph *g, void *a, void *b, void *c);
void dnn_reduce(dnn_graph *g, int op, void *x,
                void *y); /* along dims in which y has size 1, or fewer heads */
void dnn_reshape(dnn_graph *g, void *x, void *y);
/* The first engine that the library proposes, that repeats its bits unless any_order, and that can be
 * built. *plan is freed by dnn_plan_free. */
tt_status dnn_graph_plan(dnn_graph *g, bool any_order, void **plan, int64_t *workspace);
void dnn_plan_free(cuda_dnn *d, void *plan);
/* Puts the plan on the queue; ids and addresses of n operands, host addresses for values. */
tt_status dnn_run(cuda_dnn *d, void *plan, tt_device_queue *q, int n, const int64_t *ids,
                  void *const *addresses, void *workspace, tt_error *err);

#endif
