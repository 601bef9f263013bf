/* Produce the messages of a transaction and collect their delivery reports as arrays, without Python's lock.
 *
 * confluent_kafka keeps the client: its settings, logins, callbacks, transactions and errors. This file only adds two
 * things to such a client: `core_produce` passes many messages to it in one call, and an interceptor takes the reports on
 * librdkafka's own threads. The file decides nothing. A message that is refused, or a report that is not a success with
 * an offset, is counted, and the Python code that calls this decides what follows.
 *
 * The client is known through librdkafka's public plugin interface. The setting `plugin.library.paths` names this library,
 * librdkafka calls `conf_init` while the client is created, and `on_new` receives the client. No private structure of
 * confluent_kafka or librdkafka is read.
 *
 * Python calls the functions `core_*` through ctypes.PyDLL, with Python's lock held. They use functions of Python's stable
 * ABI only, which are declared below: Debian's python3 has no Python.h, and one build serves all versions of CPython.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define PUBLIC __attribute__((visibility("default")))
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Python's stable ABI */

typedef struct _object PyObject;
typedef intptr_t Py_ssize_t;

extern PyObject *PyExc_TypeError, *PyExc_ValueError, *PyExc_MemoryError;
extern void PyErr_SetString(PyObject *type, const char *text);
extern void Py_IncRef(PyObject *object);
extern void Py_DecRef(PyObject *object);
extern PyObject *PyObject_GetAttrString(PyObject *object, const char *name);
extern PyObject *PyObject_GetAttr(PyObject *object, PyObject *name);
extern PyObject *PyUnicode_InternFromString(const char *text);
extern const char *PyUnicode_AsUTF8AndSize(PyObject *object, Py_ssize_t *size);
extern int PyBytes_AsStringAndSize(PyObject *object, char **data, Py_ssize_t *size);
extern PyObject *PySequence_GetItem(PyObject *object, Py_ssize_t index);
extern Py_ssize_t PySequence_Size(PyObject *object);
extern Py_ssize_t PyList_Size(PyObject *object);
extern PyObject *PyList_GetItem(PyObject *object, Py_ssize_t index);
extern long long PyLong_AsLongLong(PyObject *object);
extern PyObject *PyErr_Occurred(void);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *state);

/* librdkafka's public API (rdkafka.h) */

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;

typedef struct {
    int err;
    void *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { VTYPE_TOPIC = 1, VTYPE_PARTITION = 3, VTYPE_VALUE, VTYPE_KEY, VTYPE_OPAQUE, VTYPE_MSGFLAGS, VTYPE_TIMESTAMP, VTYPE_HEADER };
enum { MSG_F_COPY = 2, ERR_QUEUE_FULL = -184, ERR_INCONSISTENT = -149, ERR_FAIL = -196 };

typedef struct {
    int vtype;
    union {
        const char *cstr;
        int i;
        int32_t i32;
        int64_t i64;
        struct { void *ptr; size_t size; } mem;
        struct { const char *name; const void *val; ssize_t size; } header;
        char _pad[64];
    } u;
} rd_kafka_vu_t;

typedef int on_new_t(rd_kafka_t *, const rd_kafka_conf_t *, void *, char *, size_t);
typedef int on_destroy_t(rd_kafka_t *, void *);
typedef int on_conf_destroy_t(void *);
typedef int on_acknowledgement_t(rd_kafka_t *, rd_kafka_message_t *, void *);

static struct {
    int (*version)(void);
    int (*conf_add_on_new)(rd_kafka_conf_t *, const char *, on_new_t *, void *);
    int (*conf_add_on_destroy)(rd_kafka_conf_t *, const char *, on_conf_destroy_t *, void *);
    int (*add_on_destroy)(rd_kafka_t *, const char *, on_destroy_t *, void *);
    int (*add_on_acknowledgement)(rd_kafka_t *, const char *, on_acknowledgement_t *, void *);
    rd_kafka_error_t *(*produceva)(rd_kafka_t *, const rd_kafka_vu_t *, size_t);
    int (*error_code)(const rd_kafka_error_t *);
    void (*error_destroy)(rd_kafka_error_t *);
    int (*message_headers)(const rd_kafka_message_t *, rd_kafka_headers_t **);
    int (*header_get_all)(const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *);
    int64_t (*message_timestamp)(const rd_kafka_message_t *, int *);
} kafka;

static const struct { const char *name; void **function; } SYMBOLS[] = {
    {"rd_kafka_version", (void **)&kafka.version},
    {"rd_kafka_conf_interceptor_add_on_new", (void **)&kafka.conf_add_on_new},
    {"rd_kafka_conf_interceptor_add_on_conf_destroy", (void **)&kafka.conf_add_on_destroy},
    {"rd_kafka_interceptor_add_on_destroy", (void **)&kafka.add_on_destroy},
    {"rd_kafka_interceptor_add_on_acknowledgement", (void **)&kafka.add_on_acknowledgement},
    {"rd_kafka_produceva", (void **)&kafka.produceva},
    {"rd_kafka_error_code", (void **)&kafka.error_code},
    {"rd_kafka_error_destroy", (void **)&kafka.error_destroy},
    {"rd_kafka_message_headers", (void **)&kafka.message_headers},
    {"rd_kafka_header_get_all", (void **)&kafka.header_get_all},
    {"rd_kafka_message_timestamp", (void **)&kafka.message_timestamp},
};

/* State of one client */

#define ID_SIZE 24
#define MAX_ROWS (1 << 20)
#define MAX_HEADERS 64

typedef struct {
    unsigned char id[ID_SIZE];
    int32_t partition;
    int reported;
} row_t;

typedef struct {
    pthread_mutex_t lock; /* guards everything below except `rk` and `attached`, which one thread writes before any report */
    rd_kafka_t *rk;       /* NULL before the client is created and after it is destroyed */
    int references;       /* one of Python, one of the client's settings */
    int64_t count, capacity, missing;
    row_t *rows;
    int64_t *offsets, *timestamps;
    int32_t *slots; /* a hash table of row numbers plus 1; its size is twice `capacity`, a power of two */
    int error;      /* the first error of a report, or 0 */
} core_t;

static int live; /* cores that are not freed; changed atomically */
static PyObject *none;
static struct { PyObject *id, *topic, *value, *key, *headers, *placement; } names;
static __thread core_t *creating;  /* the core whose client this thread creates */
static __thread core_t *producing; /* the core to whose client this thread passes a message */

/* Return a hash of an id: 16 bytes of a session, and a big-endian sequence. The sequences of most messages are consecutive,
 * so they get slots in a row, without collisions. */
static uint64_t hash(const unsigned char *id) {
    uint64_t session, sequence = 0;
    memcpy(&session, id + 8, 8); /* the random half of the session */
    for (int byte = 16; byte < ID_SIZE; byte++) sequence = sequence << 8 | id[byte];
    return session + sequence;
}

/* Return the slot of this id: the row's, or the empty one where it belongs. */
static int32_t *slot_of(core_t *core, const unsigned char *id) {
    uint64_t mask = 2 * core->capacity - 1;
    for (uint64_t at = hash(id) & mask;; at = (at + 1) & mask) {
        int32_t *slot = &core->slots[at];
        if (*slot == 0 || memcmp(core->rows[*slot - 1].id, id, ID_SIZE) == 0) return slot;
    }
}

/* Make room for the rows. The arrays only grow. Return whether there was memory. */
static int reserve(core_t *core, int64_t rows) {
    if (rows <= core->capacity) return 1;
    int64_t capacity = core->capacity ? core->capacity : 1024;
    while (capacity < rows) capacity *= 2;
    row_t *new_rows = realloc(core->rows, capacity * sizeof(row_t));
    if (new_rows) core->rows = new_rows;
    int64_t *offsets = realloc(core->offsets, capacity * sizeof(int64_t));
    if (offsets) core->offsets = offsets;
    int64_t *timestamps = realloc(core->timestamps, capacity * sizeof(int64_t));
    if (timestamps) core->timestamps = timestamps;
    int32_t *slots = calloc(2 * capacity, sizeof(int32_t));
    if (!new_rows || !offsets || !timestamps || !slots) {
        free(slots);
        return 0;
    }
    free(core->slots);
    core->slots = slots;
    core->capacity = capacity;
    for (int64_t row = 0; row < core->count; row++) *slot_of(core, core->rows[row].id) = (int32_t)row + 1;
    return 1;
}

static void release(core_t *core) {
    pthread_mutex_lock(&core->lock);
    int references = --core->references;
    pthread_mutex_unlock(&core->lock);
    if (references) return;
    __atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
    pthread_mutex_destroy(&core->lock);
    free(core->rows);
    free(core->offsets);
    free(core->timestamps);
    free(core->slots);
    free(core);
}

/* The plugin: librdkafka calls these functions, without Python's lock */

/* Note the report of one message. librdkafka calls it on its own threads, for every message of the client. */
static int on_acknowledgement(rd_kafka_t *rk, rd_kafka_message_t *message, void *opaque) {
    core_t *core = opaque;
    rd_kafka_headers_t *headers;
    const char *name;
    const void *id;
    size_t size;
    int type;
    (void)rk;
    if (producing == core) return 0; /* produceva refuses the message; its caller receives the error */
    if (kafka.message_headers(message, &headers) || kafka.header_get_all(headers, 0, &name, &id, &size)) return 0;
    if (size != ID_SIZE) return 0;
    int64_t timestamp = kafka.message_timestamp(message, &type);
    pthread_mutex_lock(&core->lock);
    int32_t number = core->count ? *slot_of(core, id) : 0;
    if (number && !core->rows[number - 1].reported) {
        row_t *row = &core->rows[number - 1];
        row->reported = 1;
        core->missing--;
        core->offsets[number - 1] = message->offset;
        core->timestamps[number - 1] = timestamp;
        int error = message->err ? message->err
                    : message->offset < 0 || message->partition != row->partition ? ERR_INCONSISTENT
                                                                                  : 0;
        if (!core->error) core->error = error;
    }
    pthread_mutex_unlock(&core->lock);
    return 0;
}

/* The client ends, but its threads still report what they had. */
static int on_destroy(rd_kafka_t *rk, void *opaque) {
    core_t *core = opaque;
    (void)rk;
    core->rk = NULL;
    return 0;
}

/* The settings of the client are destroyed last of all, after its threads have ended. */
static int on_conf_destroy(void *opaque) {
    release(opaque);
    return 0;
}

static int on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *text, size_t size) {
    core_t *core = opaque;
    (void)conf;
    if (core->rk || creating != core) return 0; /* a copy of the settings; the first client keeps the core */
    if (kafka.add_on_acknowledgement(rk, "producer_core", on_acknowledgement, core) ||
        kafka.add_on_destroy(rk, "producer_core", on_destroy, core)) {
        snprintf(text, size, "the native core cannot add its interceptors");
        return ERR_FAIL;
    }
    core->rk = rk;
    return 0;
}

/* Begin the plugin. librdkafka looks for a function with this name. Refuse a library that is not the checked one. */
PUBLIC int conf_init(rd_kafka_conf_t *conf, void **plugin_opaque, char *text, size_t size) {
    Dl_info caller, checked;
    core_t *core = creating;
    (void)plugin_opaque;
    if (!core) return 0; /* a client of someone else */
    if (!dladdr(__builtin_return_address(0), &caller) || !dladdr((void *)kafka.version, &checked) ||
        caller.dli_fbase != checked.dli_fbase) {
        snprintf(text, size, "the native core was loaded by another librdkafka than the one it checked");
        return ERR_FAIL;
    }
    int error = kafka.conf_add_on_destroy(conf, "producer_core", on_conf_destroy, core);
    if (error) return error;
    pthread_mutex_lock(&core->lock);
    core->references++;
    pthread_mutex_unlock(&core->lock);
    return kafka.conf_add_on_new(conf, "producer_core", on_new, core);
}

/* Functions for Python */

/* Find librdkafka's functions in the library at this path, which is loaded already. Return its version, or 0. */
PUBLIC int core_load(const char *path, PyObject *none_object) {
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library) return 0;
    for (size_t number = 0; number < LENGTH(SYMBOLS); number++) {
        *SYMBOLS[number].function = dlsym(library, SYMBOLS[number].name);
        if (!*SYMBOLS[number].function) return 0;
    }
    none = none_object;
    names.id = PyUnicode_InternFromString("id");
    names.topic = PyUnicode_InternFromString("topic");
    names.value = PyUnicode_InternFromString("value");
    names.key = PyUnicode_InternFromString("key");
    names.headers = PyUnicode_InternFromString("headers");
    names.placement = PyUnicode_InternFromString("placement");
    return kafka.version();
}

PUBLIC core_t *core_new(void) {
    core_t *core = kafka.version ? calloc(1, sizeof(core_t)) : NULL;
    if (!core) return NULL;
    pthread_mutex_init(&core->lock, NULL);
    core->references = 1;
    __atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
    return core;
}

/* Return the number of cores that are not freed, for tests. */
PUBLIC int core_live(void) {
    return __atomic_load_n(&live, __ATOMIC_RELAXED);
}

PUBLIC void core_free(core_t *core) {
    if (core) release(core);
}

/* Attach the core to the client that this thread creates between the calls with 1 and 0. Return whether it has a client. */
PUBLIC int core_attach(core_t *core, int begin) {
    creating = begin ? core : NULL;
    return core && core->rk != NULL;
}

/* Forget the rows of the last transaction. Return the number of reports that it still lacks: a caller with a number other
 * than 0 must not use the core again, because such a report would arrive in the next transaction. */
PUBLIC int64_t core_begin(core_t *core) {
    if (!core) return -1;
    pthread_mutex_lock(&core->lock);
    int64_t missing = core->missing;
    if (!missing) {
        if (core->count) memset(core->slots, 0, 2 * core->capacity * sizeof(int32_t));
        core->count = 0;
        core->error = 0;
    }
    pthread_mutex_unlock(&core->lock);
    return missing;
}

static const rd_kafka_vu_t FIELDS[] = {
    {.vtype = VTYPE_TOPIC},
    {.vtype = VTYPE_PARTITION},
    {.vtype = VTYPE_VALUE},
    {.vtype = VTYPE_KEY},
    {.vtype = VTYPE_TIMESTAMP},
    {.vtype = VTYPE_HEADER, .u.header = {"pc-id", NULL, ID_SIZE}},
    {.vtype = VTYPE_MSGFLAGS, .u.i = MSG_F_COPY},
};

/* What `core_produce` reads of one message, with Python's lock. `references` are the objects that it must keep alive. */
typedef struct {
    const char *topic;
    char *value, *key;
    Py_ssize_t value_size, key_size;
    int64_t timestamp;
    int32_t partition;
    unsigned char id[ID_SIZE];
    size_t headers;
} message_t;

/* The objects, and the headers, of all messages of one call. */
typedef struct {
    PyObject **objects;
    size_t count, capacity;
    rd_kafka_vu_t *headers;
    size_t header_count, header_capacity;
} held_t;

static int grow(void **array, size_t *capacity, size_t needed, size_t size) {
    if (needed <= *capacity) return 1;
    size_t larger = needed * 2 + 64;
    void *memory = realloc(*array, larger * size);
    if (!memory) {
        PyErr_SetString(PyExc_MemoryError, "the native core has no memory");
        return 0;
    }
    *array = memory;
    *capacity = larger;
    return 1;
}

/* Keep a new reference until the end of the call. Return the object, or NULL without one. */
static PyObject *hold(held_t *held, PyObject *object) {
    if (!object) return NULL;
    if (!grow((void **)&held->objects, &held->capacity, held->count + 1, sizeof(PyObject *))) {
        Py_DecRef(object);
        return NULL;
    }
    held->objects[held->count++] = object;
    return object;
}

static void let_go(held_t *held) {
    for (size_t number = 0; number < held->count; number++) Py_DecRef(held->objects[number]);
    free(held->objects);
    free(held->headers);
}

/* Read bytes or None. */
static int read_bytes(PyObject *object, char **data, Py_ssize_t *size) {
    *data = NULL;
    *size = 0;
    return object && (object == none || PyBytes_AsStringAndSize(object, data, size) == 0);
}

static int read_text(PyObject *object, const char **text) {
    Py_ssize_t size;
    *text = object ? PyUnicode_AsUTF8AndSize(object, &size) : NULL;
    if (*text && strlen(*text) != (size_t)size) {
        PyErr_SetString(PyExc_ValueError, "a text for Kafka contains a null character");
        return 0;
    }
    return *text != NULL;
}

static int read_headers(PyObject *headers, held_t *held, size_t *count) {
    Py_ssize_t size = headers ? PySequence_Size(headers) : -1;
    if (size < 0) return 0;
    if (size > MAX_HEADERS) {
        PyErr_SetString(PyExc_ValueError, "more headers than the native core carries");
        return 0;
    }
    *count = (size_t)size;
    if (!grow((void **)&held->headers, &held->header_capacity, held->header_count + *count, sizeof(rd_kafka_vu_t))) return 0;
    for (Py_ssize_t number = 0; number < size; number++) {
        PyObject *pair = hold(held, PySequence_GetItem(headers, number));
        PyObject *name = pair ? hold(held, PySequence_GetItem(pair, 0)) : NULL;
        PyObject *value = name ? hold(held, PySequence_GetItem(pair, 1)) : NULL;
        rd_kafka_vu_t *vu = &held->headers[held->header_count++];
        char *data;
        Py_ssize_t length;
        if (!value || !read_text(name, &vu->u.header.name) || !read_bytes(value, &data, &length)) return 0;
        vu->vtype = VTYPE_HEADER;
        vu->u.header.val = data;
        vu->u.header.size = length;
    }
    return 1;
}

/* Read one delivery. Return 0 with a Python exception when an attribute has another type than a delivery's. */
static int read_message(PyObject *delivery, message_t *message, held_t *held) {
    char *id;
    Py_ssize_t id_size;
    PyObject *object = hold(held, PyObject_GetAttr(delivery, names.id));
    if (!object || PyBytes_AsStringAndSize(object, &id, &id_size)) return 0;
    if (id_size != ID_SIZE) {
        PyErr_SetString(PyExc_ValueError, "a message id has 24 bytes");
        return 0;
    }
    memcpy(message->id, id, ID_SIZE);
    if (!read_text(hold(held, PyObject_GetAttr(delivery, names.topic)), &message->topic)) return 0;
    if (!read_bytes(hold(held, PyObject_GetAttr(delivery, names.value)), &message->value, &message->value_size)) return 0;
    if (!read_bytes(hold(held, PyObject_GetAttr(delivery, names.key)), &message->key, &message->key_size)) return 0;
    if (!read_headers(hold(held, PyObject_GetAttr(delivery, names.headers)), held, &message->headers)) return 0;
    PyObject *placement = hold(held, PyObject_GetAttr(delivery, names.placement));
    PyObject *partition = placement ? hold(held, PySequence_GetItem(placement, 0)) : NULL;
    PyObject *timestamp = partition ? hold(held, PySequence_GetItem(placement, 1)) : NULL;
    if (!timestamp) return 0;
    long long number = PyLong_AsLongLong(partition);
    message->timestamp = PyLong_AsLongLong(timestamp);
    if (PyErr_Occurred()) return 0;
    if (number < 0 || number > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the native core needs the partition of a message");
        return 0;
    }
    message->partition = (int32_t)number;
    return 1;
}

/* Pass one message to the client; librdkafka copies it. Return its error code, 0 without one. Python's lock is not held.
 * `vus` is the call's, with the fields of FIELDS first. */
static int produce(core_t *core, const message_t *message, const rd_kafka_vu_t *headers, rd_kafka_vu_t *vus) {
    vus[0].u.cstr = message->topic;
    vus[1].u.i32 = message->partition;
    vus[2].u.mem.ptr = message->value;
    vus[2].u.mem.size = (size_t)message->value_size;
    vus[3].u.mem.ptr = message->key;
    vus[3].u.mem.size = (size_t)message->key_size;
    vus[4].u.i64 = message->timestamp;
    vus[5].u.header.val = message->id;
    if (message->headers) memcpy(vus + LENGTH(FIELDS), headers, message->headers * sizeof(rd_kafka_vu_t));
    producing = core;
    rd_kafka_error_t *error = kafka.produceva(core->rk, vus, LENGTH(FIELDS) + message->headers);
    producing = NULL;
    if (!error) return 0;
    int code = kafka.error_code(error);
    kafka.error_destroy(error);
    return code ? code : ERR_FAIL;
}

/* Add a row for each message, before the first one is passed on: its report may come at once. One lock for all of them
 * keeps this thread and librdkafka's from waiting for each other at every message. Stop at an id that has a row already.
 * Return the number of rows added. */
static int64_t add_rows(core_t *core, const message_t *messages, int64_t count) {
    int64_t added = 0;
    pthread_mutex_lock(&core->lock);
    for (; added < count; added++) {
        int32_t *slot = slot_of(core, messages[added].id);
        if (*slot) break;
        row_t *row = &core->rows[core->count];
        memcpy(row->id, messages[added].id, ID_SIZE);
        row->partition = messages[added].partition;
        row->reported = 0;
        *slot = (int32_t)++core->count;
    }
    core->missing += added;
    pthread_mutex_unlock(&core->lock);
    return added;
}

/* Remove the last rows again, in the reverse order, so that no other row was placed behind one of them. */
static void remove_rows(core_t *core, const message_t *messages, int64_t count) {
    pthread_mutex_lock(&core->lock);
    for (int64_t number = count - 1; number >= 0; number--) *slot_of(core, messages[number].id) = 0;
    core->count -= count;
    core->missing -= count;
    pthread_mutex_unlock(&core->lock);
}

/* Pass the deliveries of a list, from `start` on, to the client.
 *
 * Return the number passed on, or -1 with a Python exception. `code` is 0, or the error of the delivery at which the call
 * stopped: _QUEUE_FULL when the client has no room, any other when it refuses the message. One thread may call this at a
 * time. */
PUBLIC int64_t core_produce(core_t *core, PyObject *deliveries, int64_t start, int *code) {
    int64_t total = PyList_Size(deliveries), done = 0;
    *code = 0;
    if (total < 0) return -1;
    if (!core || !core->rk) {
        PyErr_SetString(PyExc_ValueError, "the native core has no client");
        return -1;
    }
    if (start < 0 || start > total || core->count + total - start > MAX_ROWS) {
        PyErr_SetString(PyExc_ValueError, "the native core cannot carry this many messages");
        return -1;
    }
    int64_t count = total - start;
    held_t held = {0};
    message_t *messages = calloc(count ? count : 1, sizeof(message_t));
    pthread_mutex_lock(&core->lock);
    int room = reserve(core, core->count + count);
    pthread_mutex_unlock(&core->lock);
    int valid = messages && room;
    if (!valid) PyErr_SetString(PyExc_MemoryError, "the native core has no memory");
    for (int64_t number = 0; valid && number < count; number++) {
        PyObject *delivery = PyList_GetItem(deliveries, start + number);
        valid = delivery != NULL;
        if (valid) {
            Py_IncRef(delivery); /* reading an attribute may run Python code, which may change the list */
            valid = read_message(delivery, &messages[number], &held);
            Py_DecRef(delivery);
        }
    }
    if (valid) {
        void *thread = PyEval_SaveThread();
        rd_kafka_vu_t vus[LENGTH(FIELDS) + MAX_HEADERS];
        const rd_kafka_vu_t *headers = held.headers;
        memcpy(vus, FIELDS, sizeof(FIELDS));
        int64_t added = add_rows(core, messages, count);
        for (; done < added; done++) {
            if ((*code = produce(core, &messages[done], headers, vus))) break;
            headers += messages[done].headers;
        }
        if (!*code && added < count) *code = ERR_INCONSISTENT;
        remove_rows(core, messages + done, added - done);
        PyEval_RestoreThread(thread);
    }
    let_go(&held);
    free(messages);
    return valid ? done : -1;
}

/* Return the number of messages without a report; `error` is the code of the first report that is not a success. */
PUBLIC int64_t core_missing(core_t *core, int *error) {
    if (!core) return -1;
    pthread_mutex_lock(&core->lock);
    int64_t missing = core->missing;
    *error = core->error;
    pthread_mutex_unlock(&core->lock);
    return missing;
}

/* Copy the offsets and timestamps of the rows, in the order of the messages. Return the number of rows copied. */
PUBLIC int64_t core_columns(core_t *core, int64_t *offsets, int64_t *timestamps, int64_t room) {
    if (!core) return -1;
    pthread_mutex_lock(&core->lock);
    int64_t count = core->count < room ? core->count : room;
    if (count > 0) {
        memcpy(offsets, core->offsets, count * sizeof(int64_t));
        memcpy(timestamps, core->timestamps, count * sizeof(int64_t));
    }
    pthread_mutex_unlock(&core->lock);
    return count;
}
