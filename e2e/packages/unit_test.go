//go:build linux

// Package packages tests what a release consists of: the packages for Debian and RPM systems, the systemd unit, the
// container image, and the files in deploy. `make packages-test` builds a release and runs all tests, as root on Debian.
// `go test` runs only those that need no release.
package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const unitFile = "../../deploy/systemd/postrider.service"

// maxExposure is the maximum exposure that systemd-analyze may compute for the unit, from 0 to 10.
const maxExposure = 2.5

// systemd accepts the unit without warnings, and considers it well protected.
func TestUnit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "postrider.service")
	here := strings.ReplaceAll(string(text), "/usr/bin/postrider", program) // systemd checks that the program exists
	if err := os.WriteFile(unit, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), "systemd-analyze", "security", "--no-pager", "--offline=true", unit).
		CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	found := regexp.MustCompile(`Overall exposure level for postrider\.service: ([0-9.]+)`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("systemd-analyze security shows no exposure:\n%s", out)
	}
	exposure, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil || exposure >= maxExposure {
		t.Errorf("the exposure is %v, %v; it must be below %v\n%s", exposure, err, maxExposure, out)
	}
	t.Logf("exposure %.1f", exposure)
}
