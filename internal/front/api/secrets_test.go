package api

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Secret links, API keys and signing secrets appear neither in the request log nor in the program's log.
func TestLogsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		var secrets []string
		ask := func(text string) string {
			t.Helper()
			w := f.do(t, text)
			found := regexp.MustCompile(`re_\w{8}_(\w{24})|whsec_([\w+/=]{20,})|` +
				`(?:/download/(?:received/|raw/)?|token=)([\w.-]{40,})`)
			for _, m := range found.FindAllStringSubmatch(w.Body.String(), -1) {
				secrets = append(secrets, strings.Join(m[1:], ""))
			}
			return w.Body.String()
		}
		id := func(answer string) string {
			t.Helper()
			var x struct {
				ID   string
				Data []struct{ ID string }
			}
			if err := json.Unmarshal([]byte(answer), &x); err != nil {
				t.Fatal(err)
			}
			if len(x.Data) > 0 {
				return x.Data[0].ID
			}
			return x.ID
		}
		ask("POST /domains\n\n" + `{"name":"acme.example"}`)
		receiving := id(ask("POST /domains\n\n" +
			`{"name":"in.acme.example","capabilities":{"sending":"disabled","receiving":"enabled"}}`))
		f.verified("acme.example")
		f.verified("in.acme.example")
		send := func(path string) string {
			return ask("POST /emails\n\n" + `{"from":"a@acme.example","to":"b@one.example","subject":"s","text":"t",
				"attachments":[{"filename":"a.txt","content":"aGVsbG8="},{"filename":"b.txt","path":"` + path + `"}]}`)
		}
		send("https://user:s3cr3tpass@one.example/b.txt") // refused, and logged
		email := id(send("https://one.example/b.txt?X-Amz-Signature=s3cr3tsignature"))
		secrets = append(secrets, "s3cr3tpass", "s3cr3tsignature")
		ask("POST /emails/" + email + "/share\n\n{}")
		file := id(ask("GET /emails/" + email + "/attachments"))
		ask("GET /emails/" + email + "/attachments/" + file)
		hook := id(ask("POST /webhooks\n\n" +
			`{"endpoint":"https://one.example/hook?token=s3cr3ttoken","events":["email.sent"]}`))
		secrets = append(secrets, "s3cr3ttoken")
		ask("GET /webhooks/" + hook)
		forwards := "/domains/" + receiving + "/forwards"
		rule := id(ask("POST " + forwards + "\n\n" + `{"match":"*","url":"https://one.example/mail?s3cr3tquery"}`))
		ask("GET " + forwards)
		ask("GET " + forwards + "/" + rule)
		ask("POST " + forwards + "/" + rule + "/signing-secret/rotate")
		secrets = append(secrets, "s3cr3tquery")
		ask("POST /api-keys\n\n" + `{"name":"k"}`)
		message := "From: a@one.example\nSubject: s\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n" +
			"--x\n\nhello\n--x\nContent-Disposition: attachment; filename=a.txt\n\nhello\n--x--\n"
		if answer := f.receive(t, "RECEIVE a@one.example b@in.acme.example\n\n"+message); !strings.HasPrefix(answer, "250") {
			t.Fatal(answer)
		}
		received := id(ask("GET /emails/receiving"))
		ask("GET /emails/receiving/" + received)
		ask("GET /emails/receiving/" + received + "/attachments")
		// A user may mistakenly pass an API key in place of the key's ID.
		f.do(t, "DELETE /api-keys/"+f.keys["other"])
		secrets = append(secrets, f.keys["other"][12:])
		if len(secrets) < 16 {
			t.Fatalf("only %d secrets were seen: %q", len(secrets), secrets)
		}

		rows, err := d.Query(t.Context(), `SELECT endpoint || ' ' || user_agent || ' ' || request_body || ' ' || response_body
			FROM request_logs`)
		kept, err := db.Collect(rows, err, func(r db.Row) (text string, err error) {
			err = r.Scan(&text)
			return text, err
		})
		if err != nil || len(kept) < 10 {
			t.Fatalf("%d entries, %v", len(kept), err)
		}
		for _, secret := range secrets {
			for _, text := range append(kept, f.log.String()) {
				if strings.Contains(text, secret) {
					t.Errorf("%s is in %s", secret, text)
				}
			}
		}
	})
}
