/* SPDX-License-Identifier: Apache-2.0 */
/* The end of what loop_count.h counts. */
#undef for
#undef while
#undef strcmp
#undef memcpy
#undef memmove
#undef memset
