// The Go client as a push consumer or a producer: prints "ready", then one line of JSON for each message that was
// received or acknowledged, until standard input ends.
//
//	client NAMESERVER GROUP TOPIC EXPRESSION cluster|broadcast|orderly|send
//
// A producer sends a message each 100 ms, with the tags of EXPRESSION in turns, and each until it is acknowledged.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type message struct {
	Body    string `json:"body"`
	Tags    string `json:"tags"`
	QueueID int    `json:"queueId"`
	Offset  int64  `json:"offset"`
}

func main() {
	if len(os.Args) != 6 {
		fail(fmt.Errorf("usage: client NAMESERVER GROUP TOPIC EXPRESSION cluster|broadcast|orderly|send"))
	}
	nameserver, group, topic, expression, mode := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	rlog.SetLogLevel("warn")
	resolver := primitive.NewPassthroughResolver(strings.Split(nameserver, ";"))
	if mode == "send" {
		send(resolver, group, topic, strings.Split(expression, " || "))
	} else {
		consume(resolver, group, topic, expression, mode)
	}
}

func consume(resolver primitive.NsResolver, group, topic, expression, mode string) {
	options := []consumer.Option{
		consumer.WithNsResolver(resolver),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerModel(consumer.Clustering),
		consumer.WithConsumerOrder(mode == "orderly"),
	}
	if mode == "broadcast" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	push, err := rocketmq.NewPushConsumer(options...)
	fail(err)
	received := make(chan message, 1024)
	go func() {
		for one := range received {
			say(one)
		}
	}()
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
	fail(push.Subscribe(topic, selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, one := range messages {
				received <- message{string(one.Body), one.GetTags(), one.Queue.QueueId, one.QueueOffset}
			}
			return consumer.ConsumeSuccess, nil
		}))
	fail(push.Start())
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	fail(err)
	fail(push.Shutdown())
}

func send(resolver primitive.NsResolver, group, topic string, tags []string) {
	sender, err := rocketmq.NewProducer(
		producer.WithNsResolver(resolver), producer.WithGroupName(group), producer.WithRetry(0))
	fail(err)
	fail(sender.Start())
	fmt.Println("ready")
	ended := make(chan struct{})
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		fail(err)
		close(ended)
	}()
	for number := 0; ; number++ {
		body, tag := fmt.Sprintf("go %d", number), tags[number%len(tags)]
		for acknowledged := false; !acknowledged; {
			select {
			case <-ended:
				fail(sender.Shutdown())
				return
			case <-time.After(100 * time.Millisecond):
			}
			result, err := sender.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body)).WithTag(tag))
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			} else if result.Status == primitive.SendOK {
				say(message{body, tag, result.MessageQueue.QueueId, result.QueueOffset})
				acknowledged = true
			}
		}
	}
}

func say(one message) {
	fail(json.NewEncoder(os.Stdout).Encode(one))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
