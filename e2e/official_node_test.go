package e2e

import (
	"os/exec"
	"testing"
)

// TestOfficialNodeClient runs the tests of the official Node client against the program. The Node client's tests are in
// the folder compat.
func TestOfficialNodeClient(t *testing.T) {
	t.Parallel()
	c := exec.CommandContext(t.Context(), "node", "--test")
	c.Dir = "../compat"
	c.Env = append(environ(), "POSTRIDER_BIN="+binary)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("node --test, whose packages make deps installs: %v\n%s", err, out)
	}
}
