//go:build chaos

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// clockShift names the variable by which the wall clock of a program that buildShifted made is off, in seconds.
const clockShift = "CHAOS_CLOCK_SHIFT"

// shiftedNow is put behind package time's own Now, which is renamed. The monotonic clock stays as it is.
const shiftedNow = `
var clockShift = sync.OnceValue(func() int64 {
	text, _ := syscall.Getenv("` + clockShift + `")
	n, err := atoi(text)
	if err != nil {
		panic("` + clockShift + ` is not a number of seconds: " + text)
	}
	return int64(n)
})

func Now() Time {
	t := trueNow()
	t.addSec(clockShift())
	return t
}
`

var shifted struct {
	once sync.Once
	path string
	err  error
}

// buildShifted builds the program once with a clock that is off by what the environment says.
func buildShifted(t *testing.T) string {
	t.Helper()
	shifted.once.Do(func() { shifted.path, shifted.err = overlaid(filepath.Dir(binary)) })
	if shifted.err != nil {
		t.Fatal(shifted.err)
	}
	return shifted.path
}

// overlaid builds the program in a folder, with another file in the place of the one that has time.Now.
func overlaid(dir string) (path string, err error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	text := string(source)
	const now = "\nfunc Now() Time {"
	if strings.Count(text, now) != 1 || strings.Count(text, "\nimport (") != 1 {
		return "", fmt.Errorf("%s is not as it is known to be; shifting the clock has to be written anew", original)
	}
	text = strings.Replace(text, now, "\nfunc trueNow() Time {", 1) + shiftedNow
	text = strings.Replace(text, "\nimport (", "\nimport (\n\t\"sync\"\n\t\"syscall\"", 1)
	changed, list := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{changed: []byte(text), list: overlay} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return "", err
		}
	}
	path = filepath.Join(dir, "postrider-shifted")
	out, err := exec.Command("go", "build", "-overlay", list, "-o", path, "../cmd/postrider").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program with a shifted clock: %w: %s", err, out)
	}
	return path, nil
}
