/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_COMM_MEMBER_MUST_H
#define TT_TESTS_COMM_MEMBER_MUST_H

/* Checks in a function of one member `m` of a world, whose file defines member_fail(m, line, status, text).
 * cmocka's asserts are for the main thread only. */

/* In a function that returns nothing: a failure ends it. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        tt_error m_err_ = {0}, *E = &m_err_;                                                       \
        const tt_status m_s_ = (call);                                                             \
        if (m_s_ != TT_OK) {                                                                       \
            member_fail(m, __LINE__, m_s_, m_err_.text);                                           \
            return;                                                                                \
        }                                                                                          \
    } while (0)
/* In any function: the other members wait for this one, so it goes on. */
#define MUST_GO_ON(call)                                                                           \
    do {                                                                                           \
        tt_error m_err_ = {0}, *E = &m_err_;                                                       \
        const tt_status m_s_ = (call);                                                             \
        if (m_s_ != TT_OK)                                                                         \
            member_fail(m, __LINE__, m_s_, m_err_.text);                                           \
    } while (0)
#define MUST_FAIL(call, status, part)                                                              \
    do {                                                                                           \
        tt_error m_err_ = {0}, *E = &m_err_;                                                       \
        const tt_status m_s_ = (call);                                                             \
        if (m_s_ != (status) || !strstr(m_err_.text, (part)))                                      \
            member_fail(m, __LINE__, m_s_, m_err_.text);                                           \
    } while (0)
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            member_fail(m, __LINE__, TT_OK, #condition);                                           \
    } while (0)

#endif
