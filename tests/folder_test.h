/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_FOLDER_TEST_H
#define TT_TESTS_FOLDER_TEST_H
#include "base/base.h"
#include <stdlib.h>

/* An empty folder of this process below TMPDIR, which the runner sets for each test program and removes after it.
 *
 *     char folder[TEST_FOLDER];
 *     assert_true(test_folder("corpus", folder));
 *     assert_true(test_folder_remove(folder)); */

#define TEST_FOLDER 200

static inline _Bool test_folder(const char *name, char path[TEST_FOLDER])
{
    const char *below = getenv("TMPDIR");
    const int n =
        snprintf(path, TEST_FOLDER, "%s/%s.XXXXXX", below && *below ? below : "/tmp", name);
    return n < TEST_FOLDER && mkdtemp(path);
}

/* Removes it with all that is in it. */
static inline _Bool test_folder_remove(const char *path)
{
    return tt_remove_tree(path, NULL) == TT_OK;
}

#endif
