// franz-go. The command line and the lines of input and output are those of driver.py.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type header [2]*string

type given struct {
	Key       *string  `json:"key"`
	Value     *string  `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp int64    `json:"timestamp"`
}

type shown struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       *string  `json:"key"`
	Value     *string  `json:"value"`
	Headers   []header `json:"headers"`
}

type ack struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var balancers = map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer()}

func toBytes(text *string) []byte {
	if text == nil {
		return nil
	}
	data, err := hex.DecodeString(*text)
	check(err)
	if data == nil {
		data = []byte{} // nil is null
	}
	return data
}

func toHex(data []byte) *string {
	if data == nil {
		return nil
	}
	text := hex.EncodeToString(data)
	return &text
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func produce(seeds []string, topic, codec string, idempotent bool) {
	options := []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codecs[codec]),
		kgo.ProducerLinger(5 * time.Millisecond),
	}
	if !idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var records []*kgo.Record
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var one given
		check(json.Unmarshal(lines.Bytes(), &one))
		record := &kgo.Record{Key: toBytes(one.Key), Value: toBytes(one.Value), Timestamp: time.UnixMilli(one.Timestamp)}
		for _, each := range one.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: *each[0], Value: toBytes(each[1])})
		}
		records = append(records, record)
		client.Produce(ctx, record, func(_ *kgo.Record, err error) { check(err) })
	}
	check(lines.Err())
	check(client.Flush(ctx))
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for _, record := range records {
		check(encoder.Encode(ack{record.Partition, record.Offset}))
	}
}

func showAssigned(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
	pairs := [][2]any{}
	for topic, partitions := range assigned {
		for _, partition := range partitions {
			pairs = append(pairs, [2]any{topic, partition})
		}
	}
	sort.Slice(pairs, func(i, j int) bool { return fmt.Sprint(pairs[i]) < fmt.Sprint(pairs[j]) })
	line, err := json.Marshal(map[string]any{"assigned": pairs})
	check(err)
	fmt.Println(string(line))
}

func consume(seeds, topics []string, count int, group, assignor string, timeout time.Duration) {
	options := []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if group != "" {
		options = append(options, kgo.ConsumerGroup(group), kgo.DisableAutoCommit(), kgo.OnPartitionsAssigned(showAssigned),
			kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second))
	}
	if assignor != "" {
		options = append(options, kgo.Balancers(balancers[assignor]))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(told, timeout)
	defer cancel()
	for count > 0 {
		fetches := client.PollFetches(ctx)
		if told.Err() != nil {
			return
		}
		if ctx.Err() != nil {
			log.Fatalf("%d records did not come in time", count)
		}
		for _, failure := range fetches.Errors() {
			log.Fatalf("%s-%d: %v", failure.Topic, failure.Partition, failure.Err)
		}
		out := bufio.NewWriter(os.Stdout)
		encoder := json.NewEncoder(out)
		fetches.EachRecord(func(record *kgo.Record) {
			headers := []header{}
			for _, each := range record.Headers {
				name := each.Key
				headers = append(headers, header{&name, toHex(each.Value)})
			}
			check(encoder.Encode(shown{
				record.Topic, record.Partition, record.Offset, record.Timestamp.UnixMilli(),
				toHex(record.Key), toHex(record.Value), headers,
			}))
			count--
		})
		check(out.Flush())
		if group != "" {
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				log.Printf("not committed: %v", err) // whoever gets the partitions reads them again
			}
		}
	}
}

func main() {
	flags := flag.NewFlagSet("franz-go", flag.ExitOnError)
	bootstrap := flags.String("bootstrap", "", "")
	topic := flags.String("topic", "", "")
	codec := flags.String("codec", "none", "")
	idempotent := flags.Bool("idempotent", false, "")
	topics := flags.String("topics", "", "")
	count := flags.Int("count", 0, "")
	group := flags.String("group", "", "")
	assignor := flags.String("assignor", "", "default: what the client has by itself")
	timeout := flags.Float64("timeout", 120, "seconds")
	check(flags.Parse(os.Args[2:]))
	seeds := strings.Split(*bootstrap, ",")
	if os.Args[1] == "produce" {
		produce(seeds, *topic, *codec, *idempotent)
	} else {
		consume(seeds, strings.Split(*topics, ","), *count, *group, *assignor, time.Duration(*timeout*float64(time.Second)))
	}
}
