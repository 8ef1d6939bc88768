// Package bench measures the performance of this program on the current machine: API requests, delivery, receiving,
// SMTP submission, hostile tenants and campaigns. It also fills large stores. docs/performance.md has the results.
//
// The benchmark starts a node as a separate process and measures it over HTTP and SMTP. It reads the CPU time and
// memory of the process from /proc. A benchmark fails if it cannot take a measurement, but never because a result is
// slow.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/smtpsink"
)

// apiKey is the API key for the measured node.
const apiKey = "re_bench_0123456789"

// Environment variables that the benchmark sets for the measured node.
const (
	EnvUnsigned = "POSTRIDER_BENCH_UNSIGNED"
	EnvLoopback = "POSTRIDER_BENCH_LOOPBACK"   // allows direct delivery to loopback addresses
	EnvProfile  = "POSTRIDER_BENCH_CPUPROFILE" // path of the file to which the node writes a CPU profile
)

// Env holds the values and functions that package cli passes to the benchmark.
type Env struct {
	Out, ErrOut io.Writer
	Version     string

	// FolderNamed reports whether a flag names data_dir.
	FolderNamed bool
	// NewImporter returns the importer that `contacts import` would use for a file with these arguments.
	NewImporter func(path string, args []string) (Importer, error)
}

// Importer imports a contacts file with the same code as the command `contacts import`.
type Importer interface {
	// Upload sends the file and returns the id of the import.
	Upload(ctx context.Context) (importID string, err error)
	// Watch waits until the import has ended.
	Watch(ctx context.Context, importID string) (ImportResult, error)
}

// ImportResult is the outcome of an import.
type ImportResult struct {
	Status, Error             string
	Created, Updated, Skipped int64 // numbers of rows
}

// modes say what is measured.
type modes struct {
	inbound, submission, hostile, bulk, lists, pages, snapshot, direct bool
	enqueue, audience                                                  int
}

// Define adds the flags of the benchmark. The returned function measures a node that runs this binary in a separate
// process. The load generator and a counting SMTP sink run in this process.
func Define(flags *pflag.FlagSet) func(ctx context.Context, e Env, c config.Config) error {
	b, m := &measurement{}, modes{}
	flags.IntVarP(&b.emails, "emails", "n", 10_000, "emails of the end-to-end run")
	flags.IntVarP(&b.conns, "connections", "c", 32, "connections of the load generator")
	flags.IntVar(&b.bytes, "bytes", 9_500, "bytes of HTML in each email")
	flags.IntVar(&b.backlog, "backlog", 20_000, "emails in the queue before draining is timed; 0 skips the drain")
	flags.IntVar(&b.runs, "runs", 3, "number of end-to-end runs; the median is reported")
	flags.BoolVar(&b.unsigned, "unsigned", false, "do not sign emails, to measure the other costs")
	flags.BoolVar(&m.direct, "direct", false,
		"deliver to the sink as the mail host of a domain, with look-ups in the DNS, instead of relaying to it")
	flags.BoolVar(&m.inbound, "inbound", false, "measure receiving mail, with Postfix's smtp-source if it is installed")
	flags.BoolVar(&m.submission, "submission", false, "measure SMTP submission")
	flags.BoolVar(&m.hostile, "hostile", false,
		"measure what a team sees beside another whose hosts and endpoints never answer")
	flags.BoolVar(&m.bulk, "bulk", false,
		"measure what single emails see beside the same team's bulk mail to the same destination")
	flags.IntVar(&m.enqueue, "enqueue", 0,
		"measure how fast so many recipients of one content are entered, as a broadcast does")
	flags.IntVar(&m.audience, "audience", 0,
		"measure imports, segments and broadcasts with so many contacts, such as 1000000; PostgreSQL must be empty before")
	flags.BoolVar(&m.snapshot, "snapshot", false,
		"run with a transaction open from start to end, and report how many pages a claim reads; needs PostgreSQL "+
			"with pg_stat_statements")
	flags.IntVar(&b.fills, "fill", 0, "fill the store with so many delivered emails of the past, such as 20000000, and "+
		"measure nothing, except with --lists or --pages; on SQLite, --data-dir names the folder of the store")
	flags.IntVar(&b.contacts, "contacts", 0, "add so many contacts to the store, such as 1000000, after --fill or to a "+
		"store that --fill made with the same --teams")
	flags.IntVar(&b.days, "days", 30, "days over which the emails of --fill are spread")
	flags.IntVar(&b.teams, "teams", 100, "number of teams of --fill; the n-th has a share proportional to 1/n")
	flags.BoolVar(&m.lists, "lists", false,
		"measure requests for lists and single emails on a store that --fill has filled")
	flags.BoolVar(&m.pages, "pages", false, "measure the pages of the dashboard on a store that --fill has filled")
	flags.IntVar(&b.requests, "requests", 0, "requests of each kind and team for --lists, or of each page and team for "+
		"--pages; 0 means 500 for --lists and 50 for --pages")
	flags.StringVar(&b.profile, "cpuprofile", "", "write a CPU profile of the node to this `file`")
	return func(ctx context.Context, e Env, c config.Config) error {
		b.env = e
		return b.measure(ctx, c, m)
	}
}

// measure measures what the modes say.
func (b *measurement) measure(ctx context.Context, c config.Config, m modes) (err error) {
	if err := b.use(c); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "postrider-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if m.enqueue > 0 {
		return b.enqueue(ctx, c, m.enqueue)
	}
	if b.sink, err = smtpsink.Start("127.0.0.1:0"); err != nil {
		return fmt.Errorf("start the sink: %w", err)
	}
	defer func() { b.sink.Close() }()
	if b.fills > 0 || b.contacts > 0 {
		if err := b.fillAll(ctx, c); err != nil || !m.lists && !m.pages {
			return err
		}
	}
	if m.pages {
		return b.pages(ctx, c)
	}
	if m.lists {
		return b.lists(ctx)
	}
	if m.inbound {
		return b.inbound(ctx)
	}
	if m.submission {
		return b.submission(ctx)
	}
	if m.hostile {
		return b.hostile(ctx)
	}
	if m.bulk {
		return b.bulk(ctx)
	}
	if m.audience > 0 {
		return b.audience(ctx, m.audience)
	}
	if m.snapshot {
		return b.snapshot(ctx)
	}
	if m.direct {
		stop, err := b.deliverDirectly()
		if err != nil {
			return err
		}
		defer stop()
	}
	return b.run(ctx)
}

// benchSecret is the secret key of all nodes that the benchmark starts, unless one is configured. A key that is new in
// each run could not read the signing keys that an earlier run has stored in the same PostgreSQL database.
const benchSecret = "62656e63682062656e63682062656e63682062656e63682062656e6368206265"

// use reads the settings of the store. The folder data_dir is used only if a flag names it, because the benchmark must
// not change the store of the node that runs with the same environment.
func (b *measurement) use(c config.Config) error {
	b.url, b.directURL = string(c.DatabaseURL), string(c.DatabaseDirectURL)
	b.partitionBy, b.secret = c.PartitionBy, cmp.Or(string(c.SecretKey), benchSecret)
	if b.env.FolderNamed {
		b.kept = c.DataDir
	}
	if b.fills < 0 || b.contacts < 0 || (b.fills > 0 || b.contacts > 0) && (b.days < 1 || b.teams < 1) {
		return errors.New("--fill, --contacts, --days and --teams must be positive")
	}
	return nil
}

// measurement is one run of the benchmark.
type measurement struct {
	env                                 Env
	emails, conns, bytes, backlog, runs int
	fills, contacts, days               int
	teams, requests                     int
	unsigned                            bool
	profile                             string
	url                                 string // URL of PostgreSQL; "" means SQLite
	directURL                           string // URL of PostgreSQL behind a pooler; "" means no pooler
	partitionBy                         string
	secret                              string // the secret key, as 64 hexadecimal digits
	kept                                string // folder that is kept after the benchmark; "" means a temporary one
	dns                                 string // DNS server of the node; "" means the system's
	// flags for a node that delivers directly; nil if the node relays to the sink
	direct []string
	dir    string
	sink   *smtpsink.Sink
}

func (b *measurement) engine() string {
	if b.url != "" {
		return "PostgreSQL"
	}
	return "SQLite"
}

func (b *measurement) say(format string, args ...any) { fmt.Fprintf(b.env.Out, format+"\n", args...) }

func (b *measurement) run(ctx context.Context) error {
	b.say("Postrider %s on %s: HTML of %d bytes, %d connections, load and sink beside it", b.env.Version,
		b.engine(), b.bytes,
		b.conns)
	n, err := b.start(ctx)
	if err != nil {
		return err
	}
	rate, err := b.endToEnd(ctx, n)
	if err == nil {
		err = b.halfLoad(ctx, n, rate/2)
	}
	b.say("peak memory                 %8.0f MB", n.peakMB())
	n.stop()
	if err != nil || b.backlog == 0 {
		return err
	}
	return b.drain(ctx)
}

// endToEnd measures the time from the first request until the outcome of the last email is recorded. It returns the
// median rate in emails per second. On PostgreSQL, endToEnd also reports the server's work for an email.
func (b *measurement) endToEnd(ctx context.Context, n *measuredNode) (float64, error) {
	if _, err := b.load(ctx, n, min(500, 10*b.emails), 0); err != nil { // warm-up load
		return 0, err
	}
	if err := n.idle(ctx); err != nil {
		return 0, err
	}
	before, err := b.serverCounts(ctx)
	if err != nil {
		return 0, err
	}
	var rates []float64
	for range b.runs {
		cpu, start := n.cpu(), time.Now()
		l, err := b.load(ctx, n, b.emails, 0)
		if err != nil {
			return 0, err
		}
		if err := n.idle(ctx); err != nil {
			return 0, err
		}
		took := time.Since(start)
		rates = append(rates, float64(b.emails)/took.Seconds())
		b.say("end to end                  %8.0f /s   accepted at %.0f/s (p50 %.1f ms, p99 %.1f ms)   CPU %.2f ms an email",
			rates[len(rates)-1], l.rate, l.p50, l.p99, (n.cpu()-cpu).Seconds()*1000/float64(b.emails))
	}
	if before != nil {
		after, err := b.serverCounts(ctx)
		if err != nil {
			return 0, err
		}
		b.say("PostgreSQL for an email     %s", after.perEmail(before, b.runs*b.emails))
	}
	return median(rates), nil
}

// halfLoad sends emails at the given rate, which is half the end-to-end rate, and reports the latency of the API
// requests. It sends for eight seconds, but no more emails than the end-to-end runs together.
func (b *measurement) halfLoad(ctx context.Context, n *measuredNode, rate float64) error {
	l, err := b.load(ctx, n, min(int(rate*8), b.runs*b.emails), rate)
	if err != nil {
		return err
	}
	b.say("accept at half load         %8.0f /s   p50 %.1f ms, p99 %.1f ms", rate, l.p50, l.p99)
	return n.idle(ctx)
}

// drain fills the queue while delivery is held, and then measures how fast the node delivers the queue under a light
// load.
func (b *measurement) drain(ctx context.Context) error {
	n, err := b.start(ctx, "--roles", "api")
	if err != nil {
		return err
	}
	idle := n.peakMB()
	l, err := b.load(ctx, n, b.backlog, 0)
	if err != nil {
		n.stop()
		return err
	}
	b.say("accept, delivery held       %8.0f /s   p50 %.1f ms, p99 %.1f ms   memory %.0f MB, peak %.0f MB with %d waiting",
		l.rate, l.p50, l.p99, idle, n.peakMB(), b.backlog)
	n.stop()
	if n, err = b.start(ctx); err != nil {
		return err
	}
	defer n.stop()
	start, cpu := time.Now(), n.cpu()
	before := b.sink.Count()
	side := min(b.backlog/8, 3000)
	beside := make(chan loadResult, 1)
	go func() {
		l, err := b.load(ctx, n, side, 300)
		l.err = err
		beside <- l
	}()
	if err := n.idle(ctx); err != nil {
		return err
	}
	took := time.Since(start)
	l = <-beside
	if l.err != nil {
		return l.err
	}
	if err := n.idle(ctx); err != nil {
		return err
	}
	sent := float64(b.sink.Count() - before)
	b.say("drain of the backlog        %8.0f /s   CPU %.2f ms an email   peak memory %.0f MB", sent/took.Seconds(),
		(n.cpu()-cpu).Seconds()*1000/sent, n.peakMB())
	b.say("accept while it drains           300 /s   p50 %.1f ms, p99 %.1f ms", l.p50, l.p99)
	return nil
}

func (b *measurement) html() string {
	return strings.Repeat("<p>Hello, this is a paragraph of the message body.</p>\n", b.bytes/55+1)[:b.bytes]
}

// data returns the measured node's data_dir.
func (b *measurement) data() string {
	if b.kept != "" {
		return b.kept
	}
	return filepath.Join(b.dir, "data")
}

func (b *measurement) blobs() string { return filepath.Join(b.data(), "blobs") }
