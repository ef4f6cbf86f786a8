// A load generator on librdkafka; prints one line of JSON per run. `make bench-kafka` builds it into .cache.
//
//   rdkperf produce BOOTSTRAP TOPIC SIZE COUNT RATE [key=value ...]   RATE: records per second, 0: as fast as it goes
//   rdkperf consume BOOTSTRAP TOPIC COUNT [key=value ...]             every partition from its beginning, until COUNT
//
// key=value: librdkafka's properties. Latency is from produce() (at a rate: from when the record was due; the sender
// wakes every 0.1 ms and never spins) to the delivery report, in ms.

#include "rdkafka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BATCH_BYTES 16000 // so much goes to a partition in turn, as a sticky partitioner does it
#define PATIENCE_S 15     // a consumer that gets nothing for so long ends
#define AT_ONCE 2000      // messages taken from the queue together

static float *latencies_ms;
static long delivered, failed;
static char first_error[256];

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void fail(const char *why) {
    fprintf(stderr, "rdkperf: %s\n", why);
    exit(2);
}

// The send time travels in the message's opaque pointer.
static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) {
        if (!failed++) snprintf(first_error, sizeof first_error, "%s", rd_kafka_err2str(message->err));
        return;
    }
    double sent_s;
    memcpy(&sent_s, &message->_private, sizeof sent_s);
    latencies_ms[delivered++] = (now_s() - sent_s) * 1e3;
}

static int partitions_of(rd_kafka_t *client, rd_kafka_topic_t *topic) {
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(client, 0, topic, &metadata, 10000)) fail("no metadata within 10 s");
    int count = metadata->topics[0].partition_cnt;
    rd_kafka_metadata_destroy(metadata);
    if (!count) fail("the topic has no partitions");
    return count;
}

static double wait_until_due(rd_kafka_t *client, double due_s) {
    for (;;) {
        double left_s = due_s - now_s();
        if (left_s <= 0) return due_s;
        rd_kafka_poll(client, 0);
        usleep(left_s < 1e-4 ? left_s * 1e6 + 1 : 100);
    }
}

// Returns the bytes that were acknowledged.
static double produce(rd_kafka_t *client, rd_kafka_topic_t *topic, long size, long count, double rate) {
    int partitions = partitions_of(client, topic);
    long run = rate || size >= BATCH_BYTES ? 1 : BATCH_BYTES / size;
    char *body = malloc(size);
    latencies_ms = malloc(sizeof *latencies_ms * (count + 1));
    if (!body || !latencies_ms) fail("out of memory");
    for (long i = 0; i < size; i++) body[i] = 'A' + rand() % 26;
    double began_s = now_s();
    for (long n = 0; n < count; n++) {
        double sent_s = rate ? wait_until_due(client, began_s + n / rate) : now_s();
        void *opaque;
        memcpy(&opaque, &sent_s, sizeof opaque);
        while (rd_kafka_produce(topic, n / run % partitions, 0, body, size, NULL, 0, opaque))
            rd_kafka_poll(client, 5); // its queue is full
        if (!rate && n % 500 == 0) rd_kafka_poll(client, 0);
    }
    while (rd_kafka_outq_len(client) > 0) rd_kafka_poll(client, 100);
    return (double)delivered * size;
}

// Returns the bytes that were read; `delivered` counts records.
static double consume(rd_kafka_t *client, rd_kafka_topic_t *topic, long count) {
    int partitions = partitions_of(client, topic);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    for (int p = 0; p < partitions; p++)
        rd_kafka_consume_start_queue(topic, p, RD_KAFKA_OFFSET_BEGINNING, queue);
    static rd_kafka_message_t *messages[AT_ONCE];
    double bytes = 0, last_s = now_s();
    while (delivered < count && now_s() - last_s < PATIENCE_S) {
        int taken = rd_kafka_consume_batch_queue(queue, 500, messages, AT_ONCE);
        for (int i = 0; i < taken; i++) {
            if (messages[i]->err) failed++;
            else delivered++, bytes += messages[i]->len;
            rd_kafka_message_destroy(messages[i]);
        }
        if (taken > 0) last_s = now_s();
    }
    if (delivered < count && !failed++) snprintf(first_error, sizeof first_error, "%ld of %ld read", delivered, count);
    return bytes;
}

static int ascending(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return a < b ? -1 : a > b;
}

static double quantile(double share) { return delivered ? latencies_ms[(long)(share * (delivered - 1))] : 0; }

static void set(rd_kafka_conf_t *properties, const char *key, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(properties, key, value, error, sizeof error)) fail(error);
}

int main(int argc, char **argv) {
    int produces = argc > 6 && !strcmp(argv[1], "produce");
    if (!produces && !(argc > 4 && !strcmp(argv[1], "consume"))) fail("usage: see the head of rdkperf.c");

    // 1. The client.
    rd_kafka_conf_t *properties = rd_kafka_conf_new();
    set(properties, "bootstrap.servers", argv[2]);
    if (produces) {
        set(properties, "queue.buffering.max.messages", "1000000");
        rd_kafka_conf_set_dr_msg_cb(properties, on_delivery);
    } else {
        set(properties, "group.id", "rdkperf");
        set(properties, "enable.auto.commit", "false");
        set(properties, "queued.min.messages", "200000");
    }
    for (int i = produces ? 7 : 5; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) fail("a property is key=value");
        *value++ = 0;
        set(properties, argv[i], value);
    }
    char error[512];
    rd_kafka_t *client = rd_kafka_new(produces ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, properties, error, sizeof error);
    if (!client) fail(error);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, argv[3], NULL);

    // 2. The load.
    double began_s = now_s(), began_cpu_s = cpu_s();
    double bytes = produces ? produce(client, topic, atol(argv[4]), atol(argv[5]), atof(argv[6]))
                            : consume(client, topic, atol(argv[4]));
    double took_s = now_s() - began_s, cpu = cpu_s() - began_cpu_s;

    // 3. Its figures.
    printf("{\"records\":%ld,\"secs\":%.4f,\"rps\":%.1f,\"mb_s\":%.4f,\"client_cpu\":%.3f,\"errors\":%ld", delivered,
           took_s, delivered / took_s, bytes / took_s / 1e6, cpu, failed);
    if (produces) {
        qsort(latencies_ms, delivered, sizeof *latencies_ms, ascending);
        printf(",\"p50\":%.3f,\"p99\":%.3f,\"p999\":%.3f", quantile(.5), quantile(.99), quantile(.999));
    }
    if (failed) printf(",\"first_error\":\"%s\"", first_error);
    printf("}\n");
    fflush(stdout);
    _exit(failed ? 1 : 0); // librdkafka's own end takes seconds
}
