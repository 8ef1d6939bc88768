package cli

import (
	"context"
	"io"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/bench"
	"github.com/postrider/postrider/internal/lib/config"
)

func benchCommand() command {
	return command{use: "bench", plain: true, group: groupTools, source: &devSource,
		short: "measure the performance of this program on this machine",
		long: "Starts a node of this program in a separate process and measures it. Without flags, it measures sending " +
			"from the API request to the last answer. docs/performance.md describes the measurements.",
		example: "postrider bench\npostrider bench --inbound",
		usual:   []string{"config", "data-dir", "database-url", "database-direct-url", "partition-by"},
		define: func(flags *pflag.FlagSet) runner {
			run := bench.Define(flags)
			return withSettings(func(ctx context.Context, e *env, c config.Config, _ []string) error {
				_, named := e.settings.given["data-dir"]
				return run(ctx, bench.Env{Out: e.out, ErrOut: e.errOut, Version: Version, FolderNamed: named,
					NewImporter: newBenchImporter(e)}, c)
			})
		}}
}

// newBenchImporter returns the function with which the benchmark makes importers.
func newBenchImporter(e *env) func(path string, args []string) (bench.Importer, error) {
	return func(path string, args []string) (bench.Importer, error) {
		flags := pflag.NewFlagSet("import", pflag.ContinueOnError)
		m := newImporter(flags)
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		err := m.use(&env{getenv: e.getenv, out: io.Discard, errOut: io.Discard}, path)
		return benchImporter{m}, err
	}
}

// benchImporter imports contacts for the benchmark, with the same code as `postrider contacts import`.
type benchImporter struct{ *importer }

// Upload implements bench.Importer.
func (b benchImporter) Upload(ctx context.Context) (string, error) { return b.upload(ctx) }

// Watch implements bench.Importer.
func (b benchImporter) Watch(ctx context.Context, importID string) (bench.ImportResult, error) {
	last, err := b.watch(ctx, importID)
	return bench.ImportResult{Status: last.Status, Error: last.Error, Created: last.Counts.Created,
		Updated: last.Counts.Updated, Skipped: last.Counts.Skipped}, err
}
