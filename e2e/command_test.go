package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// commandLimit is the maximum time that a command may take.
const commandLimit = 10 * time.Minute

// command runs the program and waits until it exits. It kills a program that takes longer than commandLimit, and then
// returns an error.
func command(t *testing.T, env []string, args ...string) (out, errOut string, err error) {
	t.Helper()
	return commandWithin(t, commandLimit, env, args...)
}

// commandWithin is command with another limit.
func commandWithin(t *testing.T, limit time.Duration, env []string, args ...string) (out, errOut string, err error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	var o, e bytes.Buffer
	c := exec.CommandContext(ctx, binary, args...)
	c.Env = append(environ(), env...)
	c.Stdout, c.Stderr = &o, &e
	if err = c.Run(); ctx.Err() != nil {
		err = fmt.Errorf("postrider %s did not exit within %v: %w", strings.Join(args, " "), limit, ctx.Err())
	}
	return o.String(), e.String(), err
}

func TestCommands(t *testing.T) {
	env := []string{"POSTRIDER_DATA_DIR=" + filepath.Join(t.TempDir(), "data")}
	out, errOut, err := command(t, env, "migrate")
	if err != nil || !strings.Contains(out, "applied 0001_first") {
		t.Fatalf("migrate: %s%s%v", out, errOut, err)
	}
	if out, _, err = command(t, env, "migrate"); err != nil || !strings.Contains(out, "up to date") {
		t.Errorf("migrate again: %s%v", out, err)
	}
	if out, errOut, err = command(t, env, "keys", "create", "--create-team", "--team", "Acme",
		"--sending"); err != nil ||
		!strings.HasPrefix(out, "re_") {
		t.Errorf("keys create: %s%s%v", out, errOut, err)
	}
	if out, errOut, err = command(t, env, "jobs"); err != nil || !strings.Contains(out, "kind") {
		t.Errorf("jobs: %s%s%v", out, errOut, err)
	}
	if _, errOut, err = command(t, env, "jobs", "retry", "nothing"); err == nil ||
		!strings.Contains(errOut, "no parked job") {
		t.Errorf("retry of what is not there: %s%v", errOut, err)
	}
	if out, _, err = command(t, env, "version"); err != nil || !strings.HasPrefix(out, "postrider ") {
		t.Errorf("version: %s%v", out, err)
	}
	if _, errOut, err = command(t, append(env, "POSTRIDER_TRANSPORT=pigeon", "POSTRIDER_RATE_LIMIT=many"),
		"serve"); err == nil ||
		!strings.Contains(errOut, "transport") || !strings.Contains(errOut, "rate_limit") {
		t.Errorf("serve does not name both problems of its settings: %s%v", errOut, err)
	}
	if _, _, err = command(t, env, "nonsense"); err == nil {
		t.Error("a command that is none succeeds")
	}
}

func TestOneNodeAFolder(t *testing.T) {
	n := start(t, nil)
	var dir string
	for i, a := range n.args {
		if a == "--data-dir" {
			dir = n.args[i+1]
		}
	}
	_, errOut, err := command(t, nil, "dev", "--data-dir", dir, "--http", "127.0.0.1:0")
	if err == nil || !strings.Contains(errOut, "another node") {
		t.Errorf("a second node in the folder: %s%v", errOut, err)
	}
}

func TestLinks(t *testing.T) {
	n := start(t, nil)
	var sent struct{ ID, URL string }
	n.must(http.MethodPost, "/emails",
		`{"from":"onboarding@resend.dev","to":"bob@example.net","subject":"A <b> subject",
		"html":"<p>Hi</p><script>alert(1)</script>","attachments":[{"filename":"a.html","content":"PHA+"}]}`, &sent)
	id := sent.ID
	n.must(http.MethodPost, "/emails/"+id+"/share", `{"expires_in":"1 hour"}`, &sent)
	page, header := get(t, sent.URL, http.StatusOK)
	if !strings.Contains(page, "A &lt;b&gt; subject") || strings.Contains(page, "<script>") ||
		!strings.Contains(page, "sandbox") {
		t.Errorf("the shared page shows\n%s", page)
	}
	if header.Get("X-Robots-Tag") != "noindex" || header.Get("Content-Security-Policy") == "" {
		t.Errorf("headers of the shared page: %v", header)
	}
	get(t, sent.URL+"x", http.StatusNotFound)

	var list struct {
		Data []struct {
			DownloadURL string `json:"download_url"`
		}
	}
	n.must(http.MethodGet, "/emails/"+id+"/attachments", "", &list)
	file, header := get(t, list.Data[0].DownloadURL, http.StatusOK)
	if file != "<p>" || !strings.HasPrefix(header.Get("Content-Disposition"), "attachment") {
		t.Errorf("downloaded %q with %v", file, header)
	}
	get(t, list.Data[0].DownloadURL+"x", http.StatusNotFound)

	var doc struct {
		OpenAPI string
		Paths   map[string]json.RawMessage
	}
	n.must(http.MethodGet, "/openapi.json", "", &doc)
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || doc.Paths["/emails/batch"] == nil {
		t.Errorf("the document is of version %q and has %d paths", doc.OpenAPI, len(doc.Paths))
	}
	var attempts struct {
		Data []struct{ Outcome, Conversation string }
	}
	eventually(t, 20*time.Second, "the attempt is recorded", func() bool {
		n.must(http.MethodGet, "/emails/"+id+"/attempts", "", &attempts)
		return len(attempts.Data) == 1 && attempts.Data[0].Outcome == "delivered" && attempts.Data[0].Conversation != ""
	})
}

func get(t *testing.T, url string, want int) (string, http.Header) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != want {
		t.Errorf("GET %s: status %d, want %d; %v", url, r.StatusCode, want, err)
	}
	return string(text), r.Header
}
