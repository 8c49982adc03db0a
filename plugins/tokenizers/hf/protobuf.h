/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_PROTOBUF_H
#define TT_TOKENIZER_HF_PROTOBUF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Reads the wire format of protocol buffers: a message is a sequence of fields, each a number, a
 * wire type and a value. Every length is checked against the message it is in. */

typedef struct hf_message { /* what is left of a message */
    const uint8_t *at, *end;
    bool bad; /* it is not the wire format */
} hf_message;

typedef struct hf_field {
    uint32_t number;
    unsigned wire;       /* 0: a number, 1 and 5: 8 and 4 bytes, 2: bytes */
    uint64_t value;      /* of wire type 0, and the bits of 1 and 5 */
    const uint8_t *text; /* of wire type 2, n bytes */
    size_t n;
} hf_field;

static inline bool hf_varint(hf_message *m, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        const uint8_t byte = *m->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    m->bad = true;
    return false;
}

/* The next field; false: the message has ended, or it is bad. */
static inline bool hf_next_field(hf_message *m, hf_field *f)
{
    uint64_t key;
    *f = (hf_field){0};
    if (m->bad || m->at == m->end || !hf_varint(m, &key))
        return false;
    f->number = (uint32_t)(key >> 3);
    f->wire = (unsigned)(key & 7);
    if (f->wire == 0 && f->number)
        return hf_varint(m, &f->value);
    uint64_t n = f->wire == 1 ? 8 : 4;
    m->bad = !f->number || (f->wire != 1 && f->wire != 2 && f->wire != 5);
    if (m->bad || (f->wire == 2 && !hf_varint(m, &n)))
        return false;
    if (n > (size_t)(m->end - m->at)) {
        m->bad = true;
        return false;
    }
    f->text = m->at;
    f->n = (size_t)n;
    m->at += n;
    for (size_t i = 0; f->wire != 2 && i < f->n; i++)
        f->value |= (uint64_t)f->text[i] << 8 * i;
    return true;
}

/* The bits of a float. */
static inline float hf_float(const hf_field *f)
{
    const uint32_t bits = (uint32_t)f->value;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

#endif
