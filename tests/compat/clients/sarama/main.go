// What a cluster tells to sarama, as one object of JSON: what an exporter of metrics that asks brokers from outside has
// to go by. The versions of the requests are those of a client that takes brokers for Kafka 2.0.
package main

import (
	"encoding/json"
	"log"
	"os"
	"strings"

	"github.com/IBM/sarama"
)

// Null: it cannot be had, as of a partition without a leader.
type partition struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Leader    *int32  `json:"leader"`
	Newest    *int64  `json:"newest"`
	Oldest    *int64  `json:"oldest"`
	Replicas  []int32 `json:"replicas"`
	InSync    []int32 `json:"in_sync"`
}

// Committed: of every partition of the cluster, -1 where there is nothing.
type group struct {
	Members   int                        `json:"members"`
	Committed map[string]map[int32]int64 `json:"committed"`
}

type cluster struct {
	Brokers    map[int32]string `json:"brokers"`
	Partitions []partition      `json:"partitions"`
	Groups     map[string]group `json:"groups"`
}

func main() {
	log.SetFlags(0)
	config := sarama.NewConfig()
	config.Version = sarama.V2_0_0_0
	config.Metadata.AllowAutoTopicCreation = false
	config.Metadata.Retry.Max = 0 // a partition without a leader has none the next moment, either
	client, err := sarama.NewClient(strings.Split(os.Args[1], ","), config)
	check(err)
	defer client.Close()

	seen := cluster{Brokers: map[int32]string{}, Groups: map[string]group{}}
	topics, err := client.Topics()
	check(err)
	for _, topic := range topics {
		numbers, err := client.Partitions(topic)
		check(err)
		for _, number := range numbers {
			seen.Partitions = append(seen.Partitions, look(client, topic, number))
		}
	}
	for _, broker := range client.Brokers() {
		seen.Brokers[broker.ID()] = broker.Addr()
		if err := broker.Open(config); err != sarama.ErrAlreadyConnected {
			check(err)
		}
		for name, found := range groups(broker, seen.Partitions) {
			seen.Groups[name] = found
		}
	}
	check(json.NewEncoder(os.Stdout).Encode(seen))
}

func look(client sarama.Client, topic string, number int32) partition {
	seen := partition{Topic: topic, Partition: number}
	if leader, err := client.Leader(topic, number); err == nil {
		id := leader.ID()
		seen.Leader = &id
	}
	seen.Newest = offset(client, topic, number, sarama.OffsetNewest)
	seen.Oldest = offset(client, topic, number, sarama.OffsetOldest)
	var err error
	seen.Replicas, err = client.Replicas(topic, number)
	check(err)
	seen.InSync, err = client.InSyncReplicas(topic, number)
	check(err)
	return seen
}

func offset(client sarama.Client, topic string, number int32, which int64) *int64 {
	found, err := client.GetOffset(topic, number, which)
	if err != nil {
		return nil
	}
	return &found
}

// Those that this broker coordinates.
func groups(broker *sarama.Broker, partitions []partition) map[string]group {
	listed, err := broker.ListGroups(&sarama.ListGroupsRequest{})
	check(err)
	check(listed.Err)
	names := []string{}
	for name := range listed.Groups {
		names = append(names, name)
	}
	described, err := broker.DescribeGroups(&sarama.DescribeGroupsRequest{Groups: names})
	check(err)
	found := map[string]group{}
	for _, each := range described.Groups {
		check(each.Err)
		request := sarama.OffsetFetchRequest{ConsumerGroup: each.GroupId, Version: 4}
		for _, each := range partitions {
			request.AddPartition(each.Topic, each.Partition)
		}
		fetched, err := broker.FetchOffset(&request)
		check(err)
		check(fetched.Err)
		committed := map[string]map[int32]int64{}
		for topic, blocks := range fetched.Blocks {
			committed[topic] = map[int32]int64{}
			for number, block := range blocks {
				check(block.Err)
				committed[topic][number] = block.Offset
			}
		}
		found[each.GroupId] = group{Members: len(each.Members), Committed: committed}
	}
	return found
}

func check(err error) {
	if kafka, is := err.(sarama.KError); err != nil && (!is || kafka != sarama.ErrNoError) {
		log.Fatal(err)
	}
}
