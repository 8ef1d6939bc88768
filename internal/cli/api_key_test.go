package cli

import (
	"bytes"
	"strings"
	"testing"
)

// Help text and flag errors do not reveal the API key from the environment.
func TestHelpHidesTheAPIKey(t *testing.T) {
	t.Parallel()
	environ := []string{"POSTRIDER_API_KEY=re_hidden"}
	for _, args := range [][]string{{"listen", "--help"}, {"listen", "--api-ky"},
		{"contacts", "import", "file.csv", "--api-ky"}, {"contacts", "import", "file.csv", "--help"}} {
		var out, errOut bytes.Buffer
		Main(args, environ, &out, &errOut)
		if text := out.String() + errOut.String(); !strings.Contains(text, "api-key") || strings.Contains(text, "re_hidden") {
			t.Errorf("%q prints\n%s", args, text)
		}
	}
}
