// Offset commits at full speed, from a client cheap enough that the broker is the bottleneck.
// commit_load HOST PORT SECONDS OFFSET_FROM_END FRAMES
// FRAMES is a file: the request of each member, its length in front; the offset lies so many bytes before its end.
// Each member has a connection and one request under way; each commit is for a later offset than the one before.
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MEMBERS_MAX = 4096, ANSWER_MAX = 4096, EVENTS = 256, LATE_S = 30, STEP = 100 };

typedef struct {
    int fd;
    uint32_t size, have;
    uint8_t *frame, answer[ANSWER_MAX];
    int64_t offset;
} Member;

static void die(const char *what) {
    fprintf(stderr, "commit_load: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static uint32_t number(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return be32toh(value);
}

static void commit(Member *m, int from_end) {
    uint64_t offset = htobe64(m->offset += STEP);
    memcpy(m->frame + m->size - from_end, &offset, 8);
    if (write(m->fd, m->frame, m->size) != (ssize_t)m->size) die("a commit could not be sent in one piece");
}

static void answered(const Member *m) {
    const uint8_t *end = m->answer + m->have;  // the partition's error is in front of three ends
    int code = end[-5] << 8 | end[-4];
    if (code) {
        fprintf(stderr, "commit_load: OffsetCommit: error %d\n", code);
        exit(1);
    }
}

int main(int count, char **words) {
    if (count != 6) die("usage: commit_load HOST PORT SECONDS OFFSET_FROM_END FRAMES");
    FILE *frames = fopen(words[5], "rb");
    if (!frames) die(words[5]);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[2]))};
    inet_pton(AF_INET, words[1], &address.sin_addr);
    double seconds = atof(words[3]);
    int from_end = atoi(words[4]), members = 0, poll = epoll_create1(0), one = 1;
    Member *all = calloc(MEMBERS_MAX, sizeof *all);
    for (uint8_t length[4]; members < MEMBERS_MAX && fread(length, 1, 4, frames) == 4; members++) {
        Member *m = all + members;
        m->size = number(length) + 4;
        m->frame = malloc(m->size);
        memcpy(m->frame, length, 4);
        if (fread(m->frame + 4, 1, m->size - 4, frames) != m->size - 4) die("a frame is cut short");
        m->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(m->fd, (void *)&address, sizeof address)) die("connect");
        setsockopt(m->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = m};
        epoll_ctl(poll, EPOLL_CTL_ADD, m->fd, &wanted);
    }
    long done = 0;
    int pending = members;
    double began = now(), until = began + seconds, at = began;
    for (int i = 0; i < members; i++) commit(all + i, from_end);
    while (pending) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(poll, events, EVENTS, 1000);
        at = now();
        if (at > until + LATE_S) die("answers are missing");
        for (int i = 0; i < ready; i++) {
            Member *m = events[i].data.ptr;
            ssize_t got = read(m->fd, m->answer + m->have, ANSWER_MAX - m->have);
            if (got <= 0) die("the broker closed a connection");
            m->have += got;
            if (m->have < 4 || m->have < number(m->answer) + 4) continue;
            answered(m);
            m->have = 0;
            done++;
            if (at < until) commit(m, from_end);
            else pending--;
        }
    }
    printf("{\"records\": %ld, \"per_s\": %.1f}\n", done, done / (at - began));
    return 0;
}
