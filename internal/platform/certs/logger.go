package certs

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logCore passes the log lines of the library certmagic, which uses zap, to a slog.Logger. The library reports its
// normal work at the level info, in many lines, so logCore lowers these to debug.
type logCore struct {
	log    *slog.Logger
	worst  slog.Level // level of errors
	fields []zapcore.Field
}

// newZap returns a logger for certmagic. Its errors have the level worst.
func newZap(log *slog.Logger, worst slog.Level) *zap.Logger {
	return zap.New(&logCore{log: log, worst: worst})
}

func (c *logCore) level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return c.worst
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Enabled implements zapcore.LevelEnabler. Debug lines of the library would include one for each handshake.
func (c *logCore) Enabled(l zapcore.Level) bool {
	return l > zapcore.DebugLevel && c.log.Enabled(context.Background(), c.level(l))
}

// With implements zapcore.Core.
func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	of := *c
	of.fields = append(slices.Clip(c.fields), fields...)
	return &of
}

// Check implements zapcore.Core.
func (c *logCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

// Write implements zapcore.Core.
func (c *logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(c.fields, fields) {
		f.AddTo(values)
	}
	attrs := make([]slog.Attr, 0, len(values.Fields))
	for _, name := range slices.Sorted(maps.Keys(values.Fields)) {
		attrs = append(attrs, slog.Any(name, values.Fields[name]))
	}
	c.log.LogAttrs(context.Background(), c.level(e.Level), "certificates: "+e.Message, attrs...)
	return nil
}

// Sync implements zapcore.Core.
func (c *logCore) Sync() error { return nil }

// quiet lowers the levels of the ACME client's lines: its errors are those of one attempt, which its caller reports.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level, r.Message = slog.LevelDebug, "certificates: "+r.Message
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }
