//go:build chaos || browser

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

// clockShift is the environment variable that sets the wall-clock shift, in seconds, of programs built by buildShifted.
const clockShift = "TEST_CLOCK_SHIFT"

// shiftedNow is Go source code that is appended to package time after the original Now is renamed. It shifts the wall
// clock of time.Now, but not the monotonic clock.
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

// buildShifted builds the program once, with a wall clock that is shifted according to the environment variable
// clockShift.
func buildShifted(t *testing.T) string {
	t.Helper()
	shifted.once.Do(func() { shifted.path, shifted.err = overlaid(filepath.Dir(binary)) })
	if shifted.err != nil {
		t.Fatal(shifted.err)
	}
	return shifted.path
}

// overlaid builds the program into the given folder with a replacement for the standard library file that defines
// time.Now.
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
