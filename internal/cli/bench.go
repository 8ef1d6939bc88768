package cli

import (
	"context"
	"flag"
	"io"

	"github.com/postrider/postrider/internal/bench"
	"github.com/postrider/postrider/internal/lib/config"
)

// runBench runs the benchmark with the default development settings.
func runBench(ctx context.Context, e *env, args []string) error {
	return bench.Run(ctx, bench.Env{Out: e.out, ErrOut: e.errOut, Version: Version,
		Load: func(flags *flag.FlagSet, args []string) (config.Config, error) {
			return e.load(flags, args, config.Source{Defaults: devDefaults})
		},
		NewImporter: func(path string, args []string) (bench.Importer, error) {
			m, err := newImporter(&env{getenv: e.getenv, out: io.Discard, errOut: io.Discard}, path, args)
			return benchImporter{m}, err
		}}, args)
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
