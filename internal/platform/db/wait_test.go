package db_test

import (
	"testing"
	"time"
)

func tick(t *testing.T) <-chan time.Time {
	t.Helper()
	return time.After(20 * time.Millisecond)
}
