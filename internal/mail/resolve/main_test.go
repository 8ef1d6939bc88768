package resolve_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more tests at once than there are processors, because most of them wait for silent servers.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
