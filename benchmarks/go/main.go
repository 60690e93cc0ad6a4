// franz-go, the fastest client known: PollFetches and EachRecord, or Produce, measured as the workers of Python's clients
// measure those.
//
// The only argument is a job, as JSON, or "-" for a job on stdin; the only line of output is a measurement, as JSON.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type job struct {
	Bootstrap  string `json:"bootstrap"`
	Topic      string `json:"topic"`
	Partitions int32  `json:"partitions"`
	Records    int64  `json:"records"`
	Protocol   string `json:"security_protocol"`
	CA         string `json:"ca"`
	User       string `json:"user"`
	Password   string `json:"password"`
	Fetch      struct {
		MaxBytes          int32 `json:"fetch_max_bytes"`
		MaxPartitionBytes int32 `json:"max_partition_fetch_bytes"`
		MinBytes          int32 `json:"fetch_min_bytes"`
		MaxWaitMs         int32 `json:"fetch_max_wait_ms"`
	} `json:"fetch"`
	Takes       string           `json:"takes"` // "value": of each record its value alone
	Compression string           `json:"compression"`
	WarmUp      int64            `json:"warm_up"`
	Produce     *produceSettings `json:"produce"` // nil: consume
}

type measurement struct {
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	PeakRSS    int64   `json:"peak_rss"`
	Records    int64   `json:"records"`
	DataBytes  int64   `json:"data_bytes"`
	OffsetSum  int64   `json:"offset_sum"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(text string) error {
	var task job
	content := []byte(text)
	if text == "-" {
		var err error
		if content, err = io.ReadAll(os.Stdin); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(content, &task); err != nil {
		return err
	}
	options, err := security(task)
	if err != nil {
		return err
	}
	if task.Produce != nil {
		return produce(task, options)
	}
	return consume(task, options)
}

func consume(task job, options []kgo.Opt) error {
	client, err := kgo.NewClient(append(options,
		kgo.SeedBrokers(task.Bootstrap),
		kgo.FetchMaxBytes(task.Fetch.MaxBytes),
		kgo.FetchMaxPartitionBytes(task.Fetch.MaxPartitionBytes),
		kgo.FetchMinBytes(task.Fetch.MinBytes),
		kgo.FetchMaxWait(time.Duration(task.Fetch.MaxWaitMs)*time.Millisecond),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	if err := client.Ping(ctx); err != nil {
		return err
	}

	var found measurement
	cpuBefore, start := cpuSeconds(), time.Now()
	offsets := make(map[int32]kgo.Offset)
	for partition := int32(0); partition < task.Partitions; partition++ {
		offsets[partition] = kgo.NewOffset().At(0)
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{task.Topic: offsets})
	ends := make([]int64, task.Partitions)
	for found.Records < task.Records {
		fetches := client.PollFetches(ctx)
		if errors := fetches.Errors(); len(errors) > 0 {
			return errors[0].Err
		}
		found.Records += int64(fetches.NumRecords())
		if task.Takes == "value" {
			fetches.EachRecord(func(record *kgo.Record) {
				found.DataBytes += int64(len(record.Value))
			})
		} else {
			fetches.EachRecord(func(record *kgo.Record) {
				found.DataBytes += int64(len(record.Key) + len(record.Value))
				found.OffsetSum += record.Offset
			})
		}
		fetches.EachPartition(func(part kgo.FetchTopicPartition) {
			if count := len(part.Records); count > 0 {
				ends[part.Partition] = part.Records[count-1].Offset + 1
			}
		})
	}
	found.Seconds = time.Since(start).Seconds()
	found.CPUSeconds = cpuSeconds() - cpuBefore
	found.PeakRSS = peakRSS()
	if task.Takes == "value" { // no offset was looked at but the last ones
		for _, end := range ends {
			found.OffsetSum += end * (end - 1) / 2
		}
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func security(task job) ([]kgo.Opt, error) {
	var options []kgo.Opt
	if strings.HasSuffix(task.Protocol, "SSL") {
		pem, err := os.ReadFile(task.CA)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", task.CA)
		}
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: roots}))
	}
	if strings.HasPrefix(task.Protocol, "SASL") {
		login := scram.Auth{User: task.User, Pass: task.Password}
		options = append(options, kgo.SASL(login.AsSha512Mechanism()))
	}
	return options, nil
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Utime.Sec+usage.Stime.Sec) + float64(usage.Utime.Usec+usage.Stime.Usec)/1e6
}

// peakRSS is VmHWM, where there is /proc: ru_maxrss survives exec, and is at least the parent's.
func peakRSS() int64 {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return maxRSS()
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if kib, found := strings.CutPrefix(lines.Text(), "VmHWM:"); found {
			var number int64
			fmt.Sscanf(kib, "%d", &number)
			return number * 1024
		}
	}
	return maxRSS()
}

// maxRSS is ru_maxrss, which macOS counts in bytes, and others in kibibytes.
func maxRSS() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(usage.Maxrss)
	}
	return int64(usage.Maxrss) * 1024
}
