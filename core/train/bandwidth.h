/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BANDWIDTH_H
#define TT_BANDWIDTH_H
#include "base/pool.h"

/* Bytes per second that the pool's threads move when a fourth array changes three others in place,
 * as an optimizer does: the best mix that a kernel can hope for (reading one array alone keeps fewer
 * lines in flight and is half as fast). The arrays are 256 MiB together; if a cache holds them, it
 * is the cache's bandwidth. 0: no memory for it. */
double tt_stream_bandwidth(tt_pool *pool);

#endif
