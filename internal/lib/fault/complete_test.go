package fault_test

import (
	"fmt"
	"log/slog"
	"net/url"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
)

func TestComplete(t *testing.T) {
	t.Parallel()
	type deps struct {
		Log    *slog.Logger
		Limit  func() error
		Notify func() `deps:"optional"`
		Max    int
	}
	limit := func() error { return nil }
	if err := fault.Complete(deps{Log: slog.Default(), Limit: limit}); err != nil {
		t.Errorf("without an optional field: %v", err)
	}
	if err := fault.Complete(deps{Log: slog.Default(), Notify: func() {}}); err == nil ||
		err.Error() != "fault_test.deps lacks Limit" {
		t.Errorf("without a required function: %v", err)
	}
	var none *url.URL
	if err := fault.Complete(struct{ Source fmt.Stringer }{none}); err == nil {
		t.Error("an interface that holds a nil pointer is accepted")
	}
	if err := fault.Complete(deps{}); err == nil || err.Error() != "fault_test.deps lacks Log, Limit" {
		t.Errorf("without anything: %v", err)
	}
}
