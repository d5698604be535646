// ZooKeeper's protocol at full speed, from a client cheap enough that the server is the bottleneck.
// keeper_load PORT WHAT SESSIONS SECONDS DEPTH
//   set         each session sets the data of a node of its own, DEPTH requests under way
//   get         each session reads that node
//   ephemerals  each session creates and deletes an ephemeral node of its own
//   watches     SESSIONS watch one node; from the set that changes it to the last of their events, again and again
//   fill        SESSIONS nodes of 100 bytes, a thousand under each parent, made by one session
//   idle        SESSIONS sessions that only ping
// One thread, one connection per session. It prints its figures as JSON.
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    CREATE = 1, DELETE = 2, GET_DATA = 4, SET_DATA = 5, PING = 11,
    NODE_EXISTS = -110, EVENT_XID = -1, PING_XID = -2,
    DATA_BYTES = 100, TIMEOUT_MS = 30000, IN_BYTES = 1 << 16, OUT_BYTES = 1 << 16, EVENTS = 512, LATE_S = 60,
    DEPTH_MAX = 256, NAME_BYTES = 64, CHILDREN = 1000, FILL_DEPTH = 200, ROUNDS_MAX = 10000, BUCKETS = 200000,
};

typedef struct {
    int fd, xid, pending;
    uint32_t have;
    char path[NAME_BYTES];
    int created, answered, notified;
    double sent[DEPTH_MAX];
    uint8_t in[IN_BYTES], out[OUT_BYTES];
    uint32_t size;  // of what is to be sent
} Session;

static struct sockaddr_in address = {.sin_family = AF_INET};
static int epoll;
static uint8_t data[DATA_BYTES];
static long done, buckets[BUCKETS + 1];  // answers by microseconds

static void die(const char *format, ...) {
    va_list words;
    va_start(words, format);
    fprintf(stderr, "keeper_load: ");
    vfprintf(stderr, format, words);
    fprintf(stderr, "\n");
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

// ── jute ────────────────────────────────────────────────────────────────────────────────────────────────────────────

static int32_t int_at(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return (int32_t)be32toh(value);
}

static void put_int(Session *s, int32_t value) {
    uint32_t raw = htobe32((uint32_t)value);
    memcpy(s->out + s->size, &raw, 4);
    s->size += 4;
}

static void put_bytes(Session *s, const void *bytes, int size) {
    put_int(s, size);
    memcpy(s->out + s->size, bytes, size);
    s->size += size;
}

static uint32_t begin(Session *s, int xid, int kind) {
    if (s->size + 1024 > OUT_BYTES) die("too much to send at once");
    uint32_t at = s->size;
    s->size += 4;
    put_int(s, xid);
    put_int(s, kind);
    return at;
}

static void end(Session *s, uint32_t at) {
    uint32_t raw = htobe32(s->size - at - 4);
    memcpy(s->out + at, &raw, 4);
}

static void flush(Session *s) {
    for (uint32_t at = 0; at < s->size;) {
        ssize_t sent = send(s->fd, s->out + at, s->size - at, MSG_NOSIGNAL);
        if (sent < 0) die("send: %s", strerror(errno));
        at += sent;
    }
    s->size = 0;
}

static void create(Session *s, const char *path, const void *content, int size, int flags) {
    uint32_t at = begin(s, ++s->xid, CREATE);
    put_bytes(s, path, strlen(path));
    put_bytes(s, content, size);
    put_int(s, 1);
    put_int(s, 31);
    put_bytes(s, "world", 5);
    put_bytes(s, "anyone", 6);
    put_int(s, flags);
    end(s, at);
}

static void delete(Session *s, const char *path) {
    uint32_t at = begin(s, ++s->xid, DELETE);
    put_bytes(s, path, strlen(path));
    put_int(s, -1);
    end(s, at);
}

static void set(Session *s, const char *path) {
    uint32_t at = begin(s, ++s->xid, SET_DATA);
    put_bytes(s, path, strlen(path));
    put_bytes(s, data, DATA_BYTES);
    put_int(s, -1);
    end(s, at);
}

static void get(Session *s, const char *path, int watch) {
    uint32_t at = begin(s, ++s->xid, GET_DATA);
    put_bytes(s, path, strlen(path));
    s->out[s->size++] = watch;
    end(s, at);
}

static void ping(Session *s) {
    uint32_t at = begin(s, PING_XID, PING);
    end(s, at);
}

// ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────────────

static void receive(Session *s) {
    ssize_t got = recv(s->fd, s->in + s->have, IN_BYTES - s->have, 0);
    if (got <= 0) die("the server closed a connection (%s)", got ? strerror(errno) : "end");
    s->have += got;
}

// The next whole answer; its error is checked. 0: there is none yet.
static int answer(Session *s, uint32_t *at, int *xid) {
    if (s->have - *at < 4) return 0;
    uint32_t size = int_at(s->in + *at);
    if (s->have - *at < 4 + size) return 0;
    *xid = int_at(s->in + *at + 4);
    int error = int_at(s->in + *at + 16);
    if (error && error != NODE_EXISTS) die("error %d", error);
    *at += 4 + size;
    return 1;
}

static void keep(Session *s, uint32_t at) {
    memmove(s->in, s->in + at, s->have - at);
    s->have -= at;
}

static void await(Session *s) {  // one answer, nothing else under way
    uint32_t at = 0;
    int xid;
    while (!answer(s, &at, &xid)) receive(s);
    keep(s, at);
}

static void greet(Session *s) {
    s->fd = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;
    if (s->fd < 0 || connect(s->fd, (void *)&address, sizeof address)) die("connect: %s", strerror(errno));
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    uint8_t password[16] = {0};
    s->size = 4;
    put_int(s, 0);
    put_int(s, 0), put_int(s, 0);  // last zxid
    put_int(s, TIMEOUT_MS);
    put_int(s, 0), put_int(s, 0);  // session
    put_bytes(s, password, 16);
    s->out[s->size++] = 0;
    end(s, 0);
    flush(s);
}

static void welcome(Session *s) {
    while (s->have < 4 || s->have < 4 + (uint32_t)int_at(s->in)) receive(s);
    if (int_at(s->in + 8) <= 0) die("no session was given");
    s->have = 0;
}

static Session *sessions(int count) {
    Session *all = calloc(count, sizeof *all);
    enum { AT_ONCE = 32 };  // less than ZooKeeper's backlog of 50
    for (int first = 0; first < count; first += AT_ONCE) {
        int last = first + AT_ONCE < count ? first + AT_ONCE : count;
        for (int i = first; i < last; i++) greet(all + i);
        for (int i = first; i < last; i++) welcome(all + i);
    }
    for (int i = 0; i < count; i++) {
        snprintf(all[i].path, NAME_BYTES, "/bench/node-%d", i);
        struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = all + i};
        epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &wanted);
    }
    return all;
}

static void prepare(Session *all, int count) {
    create(all, "/bench", "", 0, 0), flush(all), await(all);
    for (int i = 0; i < count; i++) create(all, all[i].path, data, DATA_BYTES, 0), flush(all), await(all);
}

// ── loads ───────────────────────────────────────────────────────────────────────────────────────────────────────────

static void ask(Session *s, char what) {
    s->sent[(s->xid + 1) % DEPTH_MAX] = now();
    if (what == 's') set(s, s->path);
    else if (what == 'g') get(s, s->path, 0);
    else if (s->created) s->created = 0, delete(s, s->path);
    else s->created = 1, create(s, s->path, data, DATA_BYTES, 1);
    s->pending++;
}

static double quantile(double part) {
    long seen = 0;
    for (int i = 0; i <= BUCKETS; i++)
        if ((seen += buckets[i]) >= part * done) return i;
    return BUCKETS;
}

static void load(char what, int count, double seconds, int depth) {
    Session *all = sessions(count);
    if (what == 'e') {
        create(all, "/bench", "", 0, 0), flush(all), await(all);
        for (int i = 0; i < count; i++) snprintf(all[i].path, NAME_BYTES, "/bench/ephemeral-%d", i);
    } else {
        prepare(all, count);
    }
    double began = now(), until = began + seconds, at = began;
    int busy = count;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < depth; j++) ask(all + i, what);
        flush(all + i);
    }
    while (busy) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(epoll, events, EVENTS, 1000), xid;
        if ((at = now()) > until + LATE_S) die("answers are missing");
        for (int i = 0; i < ready; i++) {
            Session *s = events[i].data.ptr;
            receive(s);
            uint32_t to = 0;
            double heard = now();
            while (answer(s, &to, &xid)) {
                long took = (heard - s->sent[xid % DEPTH_MAX]) * 1e6;
                buckets[took < BUCKETS ? took : BUCKETS]++;
                done++;
                s->pending--;
                if (heard < until) ask(s, what);
            }
            keep(s, to);
            if (!s->pending) busy--;
            flush(s);
        }
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu_s = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    printf("{\"records\": %ld, \"per_s\": %.1f, \"p50_us\": %.0f, \"p99_us\": %.0f, \"client_cpu_s\": %.3f}\n", done,
           done / (at - began), quantile(.5), quantile(.99), cpu_s);
}

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

// Reads until every watcher has its answers and its event.
static void gather(int answers, int notices) {
    double until = now() + LATE_S;
    while (answers || notices) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(epoll, events, EVENTS, 1000), xid;
        if (now() > until) die("%d answers and %d events are missing", answers, notices);
        for (int i = 0; i < ready; i++) {
            Session *s = events[i].data.ptr;
            receive(s);
            uint32_t to = 0;
            while (answer(s, &to, &xid)) xid == EVENT_XID ? notices-- : answers--;
            keep(s, to);
        }
    }
}

static void watches(int count, double seconds) {
    Session *all = sessions(count + 1), *setter = all + count;
    prepare(all, 1);
    static double took[ROUNDS_MAX];
    int rounds = 0;
    double until = now() + seconds;
    while (rounds < 3 || (now() < until && rounds < ROUNDS_MAX)) {
        for (int i = 0; i < count; i++) get(all + i, all[0].path, 1), flush(all + i);
        gather(count, 0);
        double began = now();
        set(setter, all[0].path), flush(setter);
        gather(1, count);
        took[rounds++] = now() - began;
    }
    qsort(took, rounds, sizeof *took, ascending);
    printf("{\"records\": %ld, \"settle_ms\": %.3f, \"worst_ms\": %.3f}\n", (long)rounds * count, took[rounds / 2] * 1e3,
           took[rounds - 1] * 1e3);
}

static void fill(int count) {
    Session *s = sessions(1);
    char path[NAME_BYTES];
    create(s, "/fill", "", 0, 0), flush(s), await(s);
    double began = now();
    int pending = 0, xid;
    for (int i = 0; i < count || pending;) {
        for (; i < count && pending < FILL_DEPTH; i++, pending++) {
            snprintf(path, NAME_BYTES, "/fill/%04d", i / CHILDREN);
            if (i % CHILDREN == 0) create(s, path, "", 0, 0), pending++;
            snprintf(path, NAME_BYTES, "/fill/%04d/node-%010d", i / CHILDREN, i);
            create(s, path, data, DATA_BYTES, 0);
        }
        flush(s);
        receive(s);
        uint32_t to = 0;
        while (answer(s, &to, &xid)) pending--;
        keep(s, to);
    }
    printf("{\"records\": %d, \"per_s\": %.1f}\n", count, count / (now() - began));
}

// Pings as ZooKeeper's own client does, at a third of the time-out; says on a line of its own when all are there.
static void idle(int count, double seconds) {
    Session *all = sessions(count);
    printf("ready\n");
    fflush(stdout);
    double began = now(), until = began + seconds, step = TIMEOUT_MS / 3000.0 / count;
    long pings = 0, answers = 0;
    while (now() < until || answers < pings) {
        for (; now() < until && pings * step < now() - began; pings++) ping(all + pings % count), flush(all + pings % count);
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(epoll, events, EVENTS, 1), xid;
        if (now() > until + LATE_S) die("answers are missing");
        for (int i = 0; i < ready; i++) {
            Session *s = events[i].data.ptr;
            receive(s);
            uint32_t to = 0;
            while (answer(s, &to, &xid)) answers++;
            keep(s, to);
        }
    }
    printf("{\"records\": %ld}\n", pings);
}

int main(int count, char **words) {
    if (count != 6) die("usage: keeper_load PORT WHAT SESSIONS SECONDS DEPTH");
    address.sin_port = htons(atoi(words[1]));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    memset(data, 'x', DATA_BYTES);
    epoll = epoll_create1(0);
    const char *what = words[2];
    int number = atoi(words[3]), depth = atoi(words[5]);
    double seconds = atof(words[4]);
    if (number < 1 || depth < 1 || depth >= DEPTH_MAX) die("SESSIONS or DEPTH is out of range");
    if (!strcmp(what, "watches")) watches(number, seconds);
    else if (!strcmp(what, "fill")) fill(number);
    else if (!strcmp(what, "idle")) idle(number, seconds);
    else if (!strcmp(what, "set") || !strcmp(what, "get") || !strcmp(what, "ephemerals"))
        load(what[0], number, seconds, depth);
    else die("%s is no load", what);
    return 0;
}
