/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INTERCHANGE_INSTALL_H
#define TT_INTERCHANGE_INSTALL_H

/* Gives the core what interchange reads and writes for it. A program calls this once, before it opens a folder or makes a
 * setup; without it the core has step folders and safetensors. */
void tt_interchange_install(void);

#endif
