/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/peers.h"
#include "launch/peers_link.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <ttrun/sockets.h>
#include <unistd.h>

#include <cmocka.h>

/* Copies of states between two nodes in one process: what is sent, what comes back, and who is refused. */

#define START UINT64_C(4711)
#define LAYOUT UINT64_C(42)
#define BYTES (3 * TT_PEERS_BLOCK + 2 * TT_PEER_PAGE) /* the last of four blocks is short */

static const tt_peers_limit patient = {-1, 60000};
static uint8_t data[BYTES];

static void rest(void)
{
    poll(NULL, 0, 2);
}

static void fill(uint8_t seed)
{
    for (int64_t i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i * 31 + i / 255 + seed);
}

/* What a rank does: a whole copy of `data`, in place of the older one. */
static void make_copy(int fd, int64_t step)
{
    tt_peer_head *h = tt_peer_map_head(fd);
    assert_non_null(h);
    if (atomic_load(&h->magic) != TT_PEER_MAGIC)
        assert_true(tt_peer_prepare(fd, h, LAYOUT, BYTES));
    const int slot = atomic_load(&h->slots[0].step) > atomic_load(&h->slots[1].step);
    atomic_store(&h->slots[slot].step, -1);
    h->slots[slot].state.st = (tt_trainer_state){.step = step, .tokens_seen = 10 * step};
    assert_int_equal(pwrite(fd, data, BYTES, TT_PEER_PAGE + slot * BYTES), BYTES);
    h->slots[slot].check = tt_peer_check(h, slot, data);
    atomic_store(&h->slots[slot].step, step);
    tt_peer_unmap_head(h);
}

/* The memory has `data` as its copy of this step. */
static bool has_data(int fd, int64_t step)
{
    tt_peer_head *h = tt_peer_map_head(fd);
    static uint8_t got[BYTES];
    const int slot = h ? tt_peer_slot_of(h, step) : -1;
    bool same = slot >= 0 && pread(fd, got, BYTES, TT_PEER_PAGE + slot * BYTES) == BYTES &&
                !memcmp(got, data, BYTES) && h->slots[slot].state.st.tokens_seen == 10 * step;
    tt_peer_unmap_head(h);
    return same;
}

static int64_t sent_of(int fd)
{
    tt_peer_head *h = tt_peer_map_head(fd);
    const int64_t sent = atomic_load(&h->sent);
    tt_peer_unmap_head(h);
    return sent;
}

static void wait_sent(int fd, int64_t step)
{
    for (int i = 0; i < 30000 && sent_of(fd) != step; i++)
        rest();
    assert_int_equal(sent_of(fd), step);
}

static bool in_stock(const tt_peers *p, int rank, int64_t step)
{
    tt_node_copy all[8];
    const int n = tt_peers_stock(p, all, 8);
    for (int i = 0; i < n; i++)
        if (all[i].rank == rank && (all[i].steps[0] == step || all[i].steps[1] == step))
            return true;
    return false;
}

static tt_peers_start start_of(int place, int64_t step, int neighbour)
{
    tt_peers_start s = {.start = START,
                        .me = place,
                        .place = place,
                        .nodes = 2,
                        .local = 1,
                        .world = 2,
                        .from_world = 2,
                        .step = step,
                        .neighbour_port = neighbour,
                        .signal_fd = -1};
    snprintf(s.neighbour, sizeof s.neighbour, "127.0.0.1");
    return s;
}

static void test_copies_go_to_the_neighbour_and_come_back(void **state)
{
    (void)state;
    tt_peers *a = tt_peers_open(NULL), *b = tt_peers_open(NULL);
    tt_peers_start sa = start_of(0, -1, tt_peers_port(b)), sb = start_of(1, -1, tt_peers_port(a));
    const int *of_a = tt_peers_begin(a, &sa), *of_b = tt_peers_begin(b, &sb);
    assert_true(of_a && of_b);
    for (int64_t step = 3; step <= 15; step += 3) {
        fill((uint8_t)(step / 6)); /* every other copy equals the one before */
        make_copy(of_a[0], step);
        make_copy(of_b[0], step);
        wait_sent(of_a[0], step);
        wait_sent(of_b[0], step);
    }
    tt_peers_end(a);
    tt_peers_end(b);
    assert_true(in_stock(a, 0, 15) && in_stock(a, 1, 15) && in_stock(a, 1, 12));
    /* Node 1 is another process now. */
    tt_peers_close(b);
    b = tt_peers_open(NULL);
    const tt_peers_fetch wanted = {.rank = 1, .host = "127.0.0.1", .port = tt_peers_port(a)};
    sa = start_of(0, 12, tt_peers_port(b));
    sb = start_of(1, 12, tt_peers_port(a));
    sa.start = sb.start = START + 1;
    sb.fetches = &wanted;
    sb.n_fetches = 1;
    of_a = tt_peers_begin(a, &sa);
    of_b = tt_peers_begin(b, &sb);
    fill(2); /* as at step 12 */
    assert_true(has_data(of_a[0], 12) && has_data(of_b[0], 12));
    assert_false(has_data(of_a[0], 15)); /* later ones are no copies any more */
    wait_sent(of_a[0], 12);
    wait_sent(of_b[0], 12);
    tt_peers_end(b);
    assert_true(in_stock(b, 0, 12) && in_stock(b, 1, 12));
    tt_peers_end(a);
    /* Copies that a start must not take are forgotten. */
    sa = start_of(0, -1, tt_peers_port(b));
    assert_non_null(tt_peers_begin(a, &sa));
    tt_peers_end(a);
    assert_false(in_stock(a, 0, 12) || in_stock(a, 1, 12));
    tt_peers_close(a);
    tt_peers_close(b);
}

/* ---- this test as a node's neighbour ---- */

static tt_node_link accept_node(int listener)
{
    struct pollfd f = {listener, POLLIN, 0};
    assert_int_equal(poll(&f, 1, 60000), 1);
    const tt_node_link l = tt_node_accept(listener);
    assert_true(l.fd >= 0);
    return l;
}

static tt_peers_message hear(tt_node_link *l, tt_peers_what what)
{
    tt_peers_message m;
    const char *why = tt_peers_hear(l, &m, &patient);
    assert_true(!why);
    assert_int_equal(m.what, what);
    return m;
}

/* Hears an offer: its blocks as text, "B" bytes, "o" other slot, "s" same. */
static void hear_offer(tt_node_link *l, int64_t step, int slot, const char *expected)
{
    static uint8_t block[TT_PEERS_BLOCK];
    char text[8] = "";
    const tt_peers_message m = hear(l, TT_PEERS_OFFER);
    assert_true(m.copy.step == step && m.slot == slot && m.copy.bytes == BYTES);
    for (int k = 0; k * TT_PEERS_BLOCK < BYTES; k++) {
        uint8_t what = 9;
        assert_true(!tt_peers_get(l, &what, 1, &patient) && what <= TT_PEERS_BYTES);
        text[k] = "soB"[what];
        const size_t n = (size_t)TT_MIN(TT_PEERS_BLOCK, BYTES - k * TT_PEERS_BLOCK);
        if (what == TT_PEERS_BYTES) {
            assert_true(!tt_peers_get(l, block, n, &patient));
            assert_memory_equal(block, data + k * TT_PEERS_BLOCK, n);
        }
    }
    assert_string_equal(text, expected);
}

static void answer(tt_node_link *l, tt_peers_what what, int64_t step)
{
    const tt_peers_message m = {
        .start = START, .what = what, .rank = 0, .step = step, .had = {{.step = -1}, {.step = -1}}
    };
    assert_true(!tt_peers_say(l, m, &patient));
}

static void test_only_blocks_that_changed_are_sent(void **state)
{
    (void)state;
    struct sockaddr_in6 at = {0};
    socklen_t n_at = sizeof at;
    tt_peers *a = tt_peers_open(NULL);
    const int listener = tt_socket_listen(0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n_at), 0);
    const tt_peers_start s = start_of(0, -1, ntohs(at.sin6_port)); /* as in a sockaddr_in */
    const int fd = tt_peers_begin(a, &s)[0];
    tt_node_link l = accept_node(listener);
    tt_peers_message m = hear(&l, TT_PEERS_SENDS);
    assert_true(m.start == START && m.rank == 0 && m.n == 1 && m.world == 2);
    answer(&l, TT_PEERS_HAS, -1);
    fill(0);
    make_copy(fd, 1);
    hear_offer(&l, 1, 0, "BBBB");
    answer(&l, TT_PEERS_ACK, 1);
    wait_sent(fd, 1);
    data[TT_PEERS_BLOCK + 5]++;
    make_copy(fd, 2);
    hear_offer(&l, 2, 1, "oBoo");
    answer(&l, TT_PEERS_ACK, 2);
    wait_sent(fd, 2);
    data[BYTES - 1]++;
    make_copy(fd, 3);
    hear_offer(&l, 3, 0, "sosB");
    answer(&l, TT_PEERS_ACK,
           -1); /* it arrived damaged: all is sent again over another connection */
    assert_true(tt_peers_hear(&l, &m, &patient) != NULL);
    tt_node_drop(&l);
    l = accept_node(listener);
    hear(&l, TT_PEERS_SENDS);
    answer(&l, TT_PEERS_HAS, -1);
    hear_offer(&l, 3, 0, "BBBB");
    answer(&l, TT_PEERS_ACK, 3);
    wait_sent(fd, 3);
    /* The rank has dropped its copies: so does the neighbour. */
    tt_peer_head *h = tt_peer_map_head(fd);
    tt_peer_drop_after(h, -1);
    tt_peer_unmap_head(h);
    m = hear(&l, TT_PEERS_OFFER);
    assert_int_equal(m.copy.step, -1);
    answer(&l, TT_PEERS_ACK, -1);
    tt_peers_end(a);
    tt_node_drop(&l);
    close(listener);
    tt_peers_close(a);
}

/* ---- who connects ---- */

static bool is_closed(tt_node_link *l)
{
    tt_peers_message m;
    const char *why = tt_peers_hear(l, &m, &patient);
    tt_node_drop(l);
    return why && strcmp(why, "the other node does nothing") != 0;
}

static tt_node_link call_of(int port, tt_peers_message m)
{
    tt_node_link l = tt_node_connect("127.0.0.1", port, -1);
    assert_true(l.fd >= 0);
    assert_true(!tt_peers_say(&l, m, &patient));
    return l;
}

static void test_strangers_are_refused(void **state)
{
    (void)state;
    tt_peers *b = tt_peers_open(NULL);
    const int port = tt_peers_port(b);
    const tt_peers_start s = start_of(1, -1, 1); /* nobody listens at its neighbour's port */
    const int fd = tt_peers_begin(b, &s)[0];
    fill(0);
    make_copy(fd, 5);
    const tt_peers_message right = {
        .start = START, .what = TT_PEERS_SENDS, .rank = 0, .n = 1, .world = 2};
    tt_peers_message wrong[5] = {right, right, right, right, right};
    wrong[0].start++;
    wrong[1].world = 3;
    wrong[2].rank = 1;
    wrong[3].what = TT_PEERS_OFFER;
    wrong[4].n = 7;
    for (int i = 0; i < 5; i++) {
        tt_node_link l = call_of(port, wrong[i]);
        assert_true(is_closed(&l));
    }
    tt_peers_message m = right; /* but for its code */
    m.magic = TT_PEERS_MAGIC;
    tt_node_link l = tt_node_connect("127.0.0.1", port, -1);
    assert_true(!tt_peers_put(&l, &m, sizeof m, &patient));
    assert_true(is_closed(&l));
    l = tt_node_connect("127.0.0.1", port, -1);
    static const char noise[sizeof m] = "noise";
    assert_true(!tt_peers_put(&l, noise, sizeof noise, &patient));
    assert_true(is_closed(&l));
    /* A copy that is not there, and one that is. */
    const tt_peers_message wants = {
        .start = START, .what = TT_PEERS_WANTS, .rank = 1, .world = 2, .step = 4};
    l = call_of(port, wants);
    m = hear(&l, TT_PEERS_GIVES);
    assert_int_equal(m.copy.step, -1);
    m = wants;
    m.step = 5;
    assert_true(!tt_peers_say(&l, m, &patient));
    m = hear(&l, TT_PEERS_GIVES);
    assert_int_equal(m.copy.step, 5);
    tt_node_drop(&l);
    tt_peers_end(b);
    tt_peers_close(b);
}

/* An offer of `data` over this connection, whose first message was right: how: 'B' its bytes, 'F' with one that differs,
 * 'o' as in the other slot. */
static void offer(tt_node_link *l, int64_t step, char how)
{
    static tt_peer_head h;
    tt_peers_message m = {
        .start = START, .what = TT_PEERS_OFFER, .rank = 0, .world = 2, .slot = step % 2};
    h = (tt_peer_head){.layout = LAYOUT, .bytes = BYTES};
    h.slots[0].state.st = (tt_trainer_state){.step = step, .tokens_seen = 10 * step};
    h.slots[0].check = tt_peer_check(&h, 0, data);
    atomic_store(&h.slots[0].step, step);
    m.copy = tt_peers_copy_of(&h, 0);
    assert_true(!tt_peers_say(l, m, &patient));
    for (int64_t at = 0; at < BYTES; at += TT_PEERS_BLOCK) {
        const uint8_t what = how == 'o' ? TT_PEERS_OTHER : TT_PEERS_BYTES;
        const size_t n = (size_t)TT_MIN(TT_PEERS_BLOCK, BYTES - at);
        data[at] ^= how == 'F';
        assert_true(!tt_peers_put(l, &what, 1, &patient));
        assert_true(how == 'o' || !tt_peers_put(l, data + at, n, &patient));
        data[at] ^= how == 'F';
    }
}

static void test_damaged_copies_are_not_taken(void **state)
{
    (void)state;
    tt_peers *b = tt_peers_open(NULL);
    const int port = tt_peers_port(b);
    const tt_peers_start s = start_of(1, -1, 1);
    assert_non_null(tt_peers_begin(b, &s));
    const tt_peers_message sends = {
        .start = START, .what = TT_PEERS_SENDS, .rank = 0, .n = 1, .world = 2};
    tt_node_link l = call_of(port, sends);
    tt_peers_message m = hear(&l, TT_PEERS_HAS);
    assert_true(m.had[0].step == -1 && m.had[1].step == -1);
    fill(1);
    offer(&l, 6, 'B');
    assert_int_equal(hear(&l, TT_PEERS_ACK).step, 6);
    offer(&l, 7, 'F');
    assert_int_equal(hear(&l, TT_PEERS_ACK).step, -1);
    fill(2);
    offer(&l, 9, 'B');
    assert_int_equal(hear(&l, TT_PEERS_ACK).step, 9);
    offer(&l, 10, 'o');
    assert_int_equal(hear(&l, TT_PEERS_ACK).step, 10);
    /* A copy whose connection ends in the middle; the other one stays. */
    m = (tt_peers_message){.start = START, .what = TT_PEERS_OFFER, .rank = 0, .slot = 1};
    m.copy = (tt_peers_copy){.layout = LAYOUT, .bytes = BYTES, .step = 11};
    assert_true(!tt_peers_say(&l, m, &patient));
    assert_true(!tt_peers_put(&l, "\2half", 5, &patient));
    tt_node_drop(&l);
    l = call_of(port, sends);
    m = hear(&l, TT_PEERS_HAS);
    assert_true(m.had[0].step == 10 && m.had[1].step == -1);
    /* Copies of later steps than the offered one are of a run that has gone back. */
    offer(&l, 3, 'B');
    assert_int_equal(hear(&l, TT_PEERS_ACK).step, 3);
    /* A rank of another node, and a block of no kind. */
    m = (tt_peers_message){.start = START, .what = TT_PEERS_OFFER, .rank = 1};
    m.copy = (tt_peers_copy){.layout = LAYOUT, .bytes = BYTES, .step = 11};
    assert_true(!tt_peers_say(&l, m, &patient));
    assert_true(is_closed(&l));
    l = call_of(port, sends);
    m = hear(&l, TT_PEERS_HAS);
    assert_true(m.had[0].step == -1 && m.had[1].step == 3);
    m = (tt_peers_message){.start = START, .what = TT_PEERS_OFFER, .rank = 0, .slot = 0};
    m.copy = (tt_peers_copy){.layout = LAYOUT, .bytes = BYTES, .step = 12};
    assert_true(!tt_peers_say(&l, m, &patient));
    assert_true(!tt_peers_put(&l, "\7", 1, &patient));
    assert_true(is_closed(&l));
    tt_peers_end(b);
    assert_true(in_stock(b, 0, 3) && !in_stock(b, 0, 12) && !in_stock(b, 0, 10));
    tt_peers_close(b);
}

static int open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_go_to_the_neighbour_and_come_back),
        cmocka_unit_test(test_only_blocks_that_changed_are_sent),
        cmocka_unit_test(test_strangers_are_refused),
        cmocka_unit_test(test_damaged_copies_are_not_taken),
    };
    const int before = open_files();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed ? failed : open_files() != before;
}
