package main

import (
	"context"
	"encoding/json"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type produceSettings struct {
	BatchSize   int32    `json:"batch_size"`
	BufferBytes int      `json:"buffer_memory"`
	LingerMs    int32    `json:"linger_ms"`
	Rate        int      `json:"rate"` // records per second; 0: as many as it can
	Values      []string `json:"values"`
}

type produced struct {
	measurement
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// produce hands over the job's records without a key, and waits until each is acknowledged.
func produce(task job, options []kgo.Opt) error {
	settings := task.Produce
	codec := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression()}[task.Compression]
	client, err := kgo.NewClient(append(options,
		kgo.SeedBrokers(task.Bootstrap),
		kgo.DefaultProduceTopic(task.Topic),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(settings.BatchSize),
		kgo.MaxBufferedBytes(settings.BufferBytes),
		kgo.MaxBufferedRecords(1<<30),
		kgo.ProducerLinger(time.Duration(settings.LingerMs)*time.Millisecond),
		kgo.ProducerBatchCompression(codec),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	values := make([][]byte, len(settings.Values))
	for index, value := range settings.Values {
		values[index] = []byte(value)
	}

	var found produced
	var lock sync.Mutex
	var failed error
	var seconds []float64
	warmUp := int64(0)
	if settings.Rate > 0 {
		warmUp = task.WarmUp
	}
	cpuBefore, start := cpuSeconds(), time.Now()
	for number := int64(0); number < task.Records; number++ {
		if settings.Rate > 0 {
			due := start.Add(time.Duration(number) * time.Second / time.Duration(settings.Rate))
			if wait := time.Until(due); wait > 0 {
				time.Sleep(wait)
			}
			if number == warmUp {
				cpuBefore = cpuSeconds()
			}
		}
		at, began := number, time.Now()
		client.Produce(ctx, &kgo.Record{Value: values[number%int64(len(values))]}, func(_ *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				failed = err
			} else if settings.Rate > 0 && at >= warmUp {
				seconds = append(seconds, time.Since(began).Seconds())
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	found.Seconds = time.Since(start).Seconds()
	found.CPUSeconds = cpuSeconds() - cpuBefore
	found.PeakRSS = peakRSS()
	found.Records = task.Records
	if count := len(seconds); count > 0 {
		sort.Float64s(seconds)
		found.P50, found.P99, found.Max = 1e3*seconds[count/2], 1e3*seconds[count*99/100], 1e3*seconds[count-1]
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}
