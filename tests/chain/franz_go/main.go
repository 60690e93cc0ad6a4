// A copier of the chain on franz-go: a GroupTransactSession copies each batch, and its offsets, in a transaction.
//
// The only argument is what tests.chain.worker gets for "copy", as JSON. It copies until its input is closed. What ends
// it otherwise is its last line, as of the other copiers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type task struct {
	Bootstrap string `json:"bootstrap"`
	Name      string `json:"name"`
	Topic     string `json:"topic"`
	Target    string `json:"target"`
	Group     string `json:"group"`
	Options   struct {
		SessionTimeoutMs    int      `json:"session_timeout_ms"`
		HeartbeatIntervalMs int      `json:"heartbeat_interval_ms"`
		Assignors           []string `json:"partition_assignment_strategy"`
	} `json:"options"`
}

const (
	atOnce             = 100
	transactionTimeout = 5 * time.Second
	pause              = 500 * time.Millisecond
)

func main() {
	if err := run(os.Args[1]); err != nil {
		say(map[string]any{"ended": "FranzGo", "why": err.Error()})
	}
}

func say(what map[string]any) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

func run(text string) error {
	var given task
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(given.Bootstrap, ",")...),
		kgo.TransactionalID(given.Name),
		kgo.TransactionTimeout(transactionTimeout),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumerGroup(given.Group),
		kgo.ConsumeTopics(given.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(time.Duration(given.Options.SessionTimeoutMs)*time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(given.Options.HeartbeatIntervalMs)*time.Millisecond),
		kgo.Balancers(balancer(given.Options.Assignors)),
		kgo.DefaultProduceTopic(given.Target),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // nothing is written there: it ends once it is closed
		stop()
	}()
	// The coordinator hands out the transactional id's epoch here, and fences a copier before this one.
	for {
		_, _, err := session.Client().ProducerID(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		fmt.Fprintln(os.Stderr, "no producer id yet:", err)
		time.Sleep(pause)
	}
	say(map[string]any{"is_ready": true})
	return copyBatches(ctx, session)
}

func balancer(names []string) kgo.GroupBalancer {
	for _, name := range names {
		if name == "cooperative-sticky" {
			return kgo.CooperativeStickyBalancer()
		}
	}
	return kgo.RangeBalancer()
}

func copyBatches(ctx context.Context, session *kgo.GroupTransactSession) error {
	for {
		fetches := session.PollRecords(ctx, atOnce)
		if ctx.Err() != nil {
			return nil
		}
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				fmt.Fprintln(os.Stderr, "fetch:", failed.Err)
			}
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		// What has begun is finished, also if the input is closed meanwhile.
		all := context.Background()
		first := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(read *kgo.Record) {
			place := fmt.Sprintf("%d:%d:", read.Partition, read.Offset)
			session.Produce(all, &kgo.Record{Key: read.Key, Value: append([]byte(place), read.Value...)}, first.Promise())
		})
		committed, err := session.End(all, first.Err() == nil)
		if err != nil {
			return err
		}
		say(map[string]any{"committed": committed})
	}
}
