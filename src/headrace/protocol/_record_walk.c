/* The walk over the records of a batch (magic 2), natively: one call per batch on the hottest path of the broker.

   `protocol/record_walk.py` has the rules, the meaning of the numbers and a twin in Python; the two give the same
   answer for all bytes (tests/unit/protocol/test_record_walk.py). Nothing here allocates while it walks, and no byte
   outside [start, end) is read. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

enum kind {
    RECORDS, CUT, NUMBER, LENGTH, OFFSET, KEY, VALUE, HEADER_COUNT, HEADER_KEY, HEADER_VALUE, END, LEFT_OVER,
    WHOLE
};

#define RECORD_ERRORS_MAX 1000
#define GIL_BYTES_MAX 65536 /* a longer walk lets other threads run */
#define NO_TIMESTAMP (-1)
#define KEYED 1 /* rules */
#define GAPS 2

struct bad_record {
    int64_t index;
    int64_t timestamp;
    bool keyless;
};

struct walk {
    const uint8_t *start;
    const uint8_t *end;
    int64_t count;
    int64_t base_timestamp;
    int64_t oldest;
    int64_t newest;
    bool keyed;
    bool gaps;
    /* what was found */
    int64_t largest;
    int64_t record;
    const uint8_t *at;
    int64_t number;
    int64_t bad_count;
    struct bad_record bad[RECORD_ERRORS_MAX];
};

static inline int64_t
unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

/* A number whose last byte begins at bit `shift_last` and has no bits above `byte_max`. */
static inline enum kind
read_number(const uint8_t **position, const uint8_t *end, int64_t *number, const int shift_last, const uint64_t byte_max)
{
    const uint8_t *at = *position;
    if (at == end)
        return CUT;
    uint64_t value = *at++;
    if (value >= 0x80) {
        value &= 0x7f;
        for (int shift = 7;; shift += 7) {
            if (at == end)
                return CUT;
            uint64_t byte = *at++;
            if (shift == shift_last && byte > byte_max)
                return NUMBER;
            value |= (byte & 0x7f) << shift;
            if (byte < 0x80)
                break;
        }
    }
    *number = unzigzag(value);
    *position = at;
    return WHOLE;
}

/* A number of 32 bits or fewer, in at most five bytes. */
static inline enum kind
read_int(const uint8_t **position, const uint8_t *end, int64_t *number)
{
    return read_number(position, end, number, 28, 0x0f);
}

/* A number of 64 bits or fewer, in at most ten bytes. */
static inline enum kind
read_long(const uint8_t **position, const uint8_t *end, int64_t *number)
{
    return read_number(position, end, number, 63, 1);
}

/* A length and what it counts; -1 is that of null. */
static inline enum kind
skip_bytes(const uint8_t **position, const uint8_t *end, int64_t *size, enum kind beyond)
{
    enum kind kind = read_int(position, end, size);
    if (kind != WHOLE)
        return kind;
    if (*size < -1 || *size > end - *position)
        return beyond;
    if (*size > 0)
        *position += *size;
    return WHOLE;
}

static enum kind
skip_headers(struct walk *walk, const uint8_t **position, const uint8_t *end, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        walk->at = *position;
        enum kind kind = skip_bytes(position, end, &walk->number, HEADER_KEY);
        if (kind != WHOLE)
            return kind;
        if (walk->number < 0)
            return HEADER_KEY;
        walk->at = *position;
        kind = skip_bytes(position, end, &walk->number, HEADER_VALUE);
        if (kind != WHOLE)
            return kind;
    }
    return WHOLE;
}

static inline void
note_bad(struct walk *walk, int64_t timestamp, bool keyless)
{
    if (walk->bad_count < RECORD_ERRORS_MAX) {
        struct bad_record *bad = &walk->bad[walk->bad_count];
        bad->index = walk->record;
        bad->timestamp = timestamp;
        bad->keyless = keyless;
    }
    walk->bad_count++;
}

/* Any kind of fault leaves its place in walk->record and walk->at, and the number that is wrong in walk->number. */
static enum kind
walk_records(struct walk *walk)
{
    const uint8_t *position = walk->start;
    const uint8_t *const end = walk->end;
    int64_t largest = NO_TIMESTAMP;
    int64_t offset_delta = 0; /* the lowest that the next record may have */
    enum kind kind;

    for (int64_t index = 0; index < walk->count; index++) {
        int64_t length = 0, delta = 0, size = 0;
        walk->record = index;
        walk->at = position;
        if ((kind = read_int(&position, end, &length)) != WHOLE)
            return kind;
        if (length <= 0 || length > end - position) {
            walk->number = length;
            return LENGTH;
        }
        const uint8_t *const record_end = position + length;
        position++; /* attributes: no bit of them has a meaning */

        walk->at = position;
        if ((kind = read_long(&position, record_end, &delta)) != WHOLE)
            return kind;
        int64_t timestamp;
        if (__builtin_add_overflow(walk->base_timestamp, delta, &timestamp))
            timestamp = delta < 0 ? INT64_MIN : INT64_MAX;

        walk->at = position;
        if ((kind = read_int(&position, record_end, &size)) != WHOLE)
            return kind;
        if (size != offset_delta && !(walk->gaps && size > offset_delta)) {
            walk->number = size;
            return OFFSET;
        }
        offset_delta = size + 1;

        walk->at = position;
        if ((kind = skip_bytes(&position, record_end, &size, KEY)) != WHOLE) {
            walk->number = size;
            return kind;
        }
        bool keyless = size < 0;

        walk->at = position;
        if ((kind = skip_bytes(&position, record_end, &size, VALUE)) != WHOLE) {
            walk->number = size;
            return kind;
        }

        walk->at = position;
        if ((kind = read_int(&position, record_end, &size)) != WHOLE)
            return kind;
        if (size != 0) {
            if (size < 0 || size > record_end - position) {
                walk->number = size;
                return HEADER_COUNT;
            }
            if ((kind = skip_headers(walk, &position, record_end, size)) != WHOLE)
                return kind;
        }
        if (position != record_end) {
            walk->at = position;
            walk->number = record_end - position;
            return END;
        }

        if (timestamp > largest)
            largest = timestamp;
        if (walk->keyed && keyless)
            note_bad(walk, timestamp, true);
        else if ((timestamp < walk->oldest || timestamp > walk->newest) && timestamp != NO_TIMESTAMP)
            note_bad(walk, timestamp, false);
    }
    walk->record = walk->count;
    walk->at = position;
    if (position != end) {
        walk->number = end - position;
        return LEFT_OVER;
    }
    walk->largest = largest;
    if (walk->bad_count) {
        walk->record = walk->bad[0].index;
        walk->number = walk->bad_count;
        return RECORDS;
    }
    return WHOLE;
}

static PyObject *
bad_records(const struct walk *walk)
{
    Py_ssize_t size = walk->bad_count < RECORD_ERRORS_MAX ? (Py_ssize_t)walk->bad_count : RECORD_ERRORS_MAX;
    PyObject *found = PyTuple_New(size);
    if (found == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < size; i++) {
        const struct bad_record *bad = &walk->bad[i];
        PyObject *entry = bad->keyless ? Py_BuildValue("(LO)", (long long)bad->index, Py_None)
                                       : Py_BuildValue("(LL)", (long long)bad->index, (long long)bad->timestamp);
        if (entry == NULL) {
            Py_DECREF(found);
            return NULL;
        }
        PyTuple_SET_ITEM(found, i, entry);
    }
    return found;
}

static PyObject *
fault(const struct walk *walk, enum kind kind)
{
    PyObject *records = kind == RECORDS ? bad_records(walk) : PyTuple_New(0);
    if (records == NULL)
        return NULL;
    /* A number that could not be read has no value. */
    int64_t number = kind == CUT || kind == NUMBER ? 0 : walk->number;
    return Py_BuildValue("(iLLLN)", (int)kind, (long long)walk->record, (long long)(walk->at - walk->start),
                         (long long)number, records);
}

static PyObject *
walk_py(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 8) {
        PyErr_Format(PyExc_TypeError, "walk takes 8 arguments; %zd were given", nargs);
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]);
    Py_ssize_t end = PyLong_AsSsize_t(args[2]);
    struct walk walk; /* not initialized as a whole: its table of bad records is large and mostly unused */
    walk.count = PyLong_AsLongLong(args[3]);
    walk.base_timestamp = PyLong_AsLongLong(args[4]);
    walk.oldest = PyLong_AsLongLong(args[5]);
    walk.newest = PyLong_AsLongLong(args[6]);
    long rules = PyLong_AsLong(args[7]);
    if (PyErr_Occurred())
        return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (start < 0 || end < start || end > view.len || walk.count < 0) {
        PyBuffer_Release(&view);
        PyErr_Format(PyExc_ValueError, "records at [%zd, %zd) of %zd bytes", start, end, view.len);
        return NULL;
    }
    walk.keyed = (rules & KEYED) != 0;
    walk.gaps = (rules & GAPS) != 0;
    walk.start = (const uint8_t *)view.buf + start;
    walk.end = (const uint8_t *)view.buf + end;
    walk.at = walk.start;
    walk.record = walk.number = walk.bad_count = 0;
    walk.largest = NO_TIMESTAMP;

    enum kind kind;
    if (end - start > GIL_BYTES_MAX) {
        Py_BEGIN_ALLOW_THREADS
        kind = walk_records(&walk);
        Py_END_ALLOW_THREADS
    } else {
        kind = walk_records(&walk);
    }
    PyObject *answer = kind == WHOLE ? PyLong_FromLongLong(walk.largest) : fault(&walk, kind);
    PyBuffer_Release(&view);
    return answer;
}

static PyMethodDef methods[] = {
    {"walk", (PyCFunction)(void (*)(void))walk_py, METH_FASTCALL,
     "walk(data, start, end, count, base_timestamp, oldest, newest, rules)\n--\n\n"
     "The largest timestamp of the records in data[start:end], or a fault as a tuple."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_record_walk", "The walk over the records of a batch, natively.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__record_walk(void)
{
    return PyModuleDef_Init(&module);
}
