// A push consumer of the Go client: prints "ready", then one line of JSON for each message, until standard input ends.
//
//	client NAMESERVER GROUP TOPIC EXPRESSION cluster|broadcast|orderly
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
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
		fail(fmt.Errorf("usage: client NAMESERVER GROUP TOPIC EXPRESSION cluster|broadcast|orderly"))
	}
	nameserver, group, topic, expression, mode := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	rlog.SetLogLevel("warn")
	options := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver(strings.Split(nameserver, ";"))),
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
	lines := json.NewEncoder(os.Stdout)
	received := make(chan message, 1024)
	go func() {
		for one := range received {
			fail(lines.Encode(one))
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

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
