package resolve

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestServersOfTheSystem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	for _, c := range []struct {
		text string
		want []string
	}{
		{"# ours\nnameserver 192.0.2.1\nnameserver 2001:db8::1\noptions rotate\n",
			[]string{"192.0.2.1:53", "[2001:db8::1]:53"}},
		{"search acme.example\n", nil},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := configured(file); !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%q: %v, %v", c.text, got, err)
		}
	}
	if got, err := configured(file + ".missing"); err == nil {
		t.Errorf("a file that is missing: %v", got)
	}
}
