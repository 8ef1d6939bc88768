package e2e

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	forms "mime/multipart" // imported under another name, because this package has a function named multipart
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestKillImport kills the program at random moments while it imports a file. At the end, the import is complete and
// each row is counted once. Each imported contact exists once, is in the segment once, and has the values of its rows.
func TestKillImport(t *testing.T) {
	t.Parallel()
	onEachEngine(t, killImport)
}

// person is a contact in the JSON format that exports use.
type person struct {
	Email      string         `json:"email"`
	FirstName  string         `json:"first_name"`
	Properties map[string]any `json:"properties"`
	Segments   []struct {
		ID string `json:"id"`
	} `json:"segments"`
}

// importCounts holds the row counts of an import.
type importCounts struct{ Total, Created, Updated, Skipped, Failed int }

// people holds a file of contacts and the expected result of importing it.
type people struct {
	file     []byte
	counts   importCounts
	failed   []string // the lines in the file that must fail
	contacts map[string]person
}

// newPeople generates a file of contacts. Most rows create a contact, some are invalid, and some change an existing
// contact or a contact that an earlier row created. An empty field in a row does not change the contact.
func newPeople(rows int, there map[string]person) *people {
	p := &people{contacts: there}
	var file bytes.Buffer
	w := csv.NewWriter(&file)
	w.Write([]string{"email", "first_name", "note", "seats"})
	older := slices.Sorted(maps.Keys(there))
	var created []string
	for i, line := 0, 2; i < rows; i++ {
		address, note, seats := fmt.Sprintf("reader%d@example.net", i), fmt.Sprintf("row %d", i), strconv.Itoa(i)
		switch i % 20 {
		case 3:
			seats = "many"
		case 7:
			address, seats = older[i/20%len(older)], ""
		case 11:
			address, seats = created[rand.IntN(len(created))], ""
		case 13:
			note = fmt.Sprintf("\"row %d\",\nof two lines", i)
		}
		w.Write([]string{address, fmt.Sprintf("Name %d", i), note, seats})
		begins := line
		line += 1 + strings.Count(note, "\n")
		if p.counts.Total++; seats == "many" {
			p.counts.Failed++
			p.failed = append(p.failed, strconv.Itoa(begins))
			continue
		}
		c, found := p.contacts[address]
		if found {
			p.counts.Updated++
		} else {
			p.counts.Created++
			c = person{Email: address, Properties: map[string]any{}}
			created = append(created, address)
		}
		c.FirstName, c.Properties["note"] = fmt.Sprintf("Name %d", i), note
		if seats != "" {
			c.Properties["seats"] = float64(i)
		}
		p.contacts[address] = c
	}
	w.Flush()
	p.file = file.Bytes()
	return p
}

// importFile starts an import and returns its id.
func (n *node) importFile(ctx context.Context, file []byte, fields map[string]string) string {
	n.t.Helper()
	var form bytes.Buffer
	w := forms.NewWriter(&form)
	for name, text := range fields {
		w.WriteField(name, text)
	}
	part, err := w.CreateFormFile("file", "people.csv")
	if err != nil {
		n.t.Fatal(err)
	}
	part.Write(file)
	w.Close()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.addr+"/contacts/imports", &form)
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", w.FormDataContentType())
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer answer.Body.Close()
	var made struct{ ID string }
	if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || answer.StatusCode != http.StatusCreated {
		n.t.Fatalf("import a file: %d, %v", answer.StatusCode, err)
	}
	return made.ID
}

func killImport(t *testing.T, env []string) {
	rounds, rows := setting(t, "POSTRIDER_KILL_ROUNDS", 1), setting(t, "POSTRIDER_KILL_ROWS", 10_000)
	n := start(t, env)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rounds)*time.Minute+5*time.Minute)
	defer cancel()
	segment := n.made(ctx, "/segments", map[string]any{"name": "Readers"})
	n.made(ctx, "/contact-properties", map[string]any{"key": "seats", "type": "number"})
	there := map[string]person{}
	for i := range 20 {
		c := person{Email: fmt.Sprintf("older%d@example.net", i), FirstName: "Older",
			Properties: map[string]any{"seats": 1.5}}
		body := map[string]any{"email": c.Email, "first_name": c.FirstName, "properties": c.Properties}
		if i%2 == 0 { // put half of the existing contacts into the segment before the import
			body["segments"] = []string{segment}
		}
		n.made(ctx, "/contacts", body)
		there[c.Email] = c
	}
	p := newPeople(rows, there)
	id := n.importFile(ctx, p.file, map[string]string{"on_conflict": "upsert", "segments": `[{"id":"` + segment + `"}]`,
		"column_map": `{"email":"email","first_name":"first_name","properties":{"note":"note",` +
			`"seats":{"column":"seats","type":"number"}}}`})
	var i struct {
		Status    string
		Processed int
		Counts    importCounts
	}
	look := func() {
		t.Helper()
		n.must(http.MethodGet, "/contacts/imports/"+id, "", &i)
	}
	within := 0 // number of kills while the import was running
	for r := range rounds {
		// No kill comes in the last part of the file, because the import may have progressed beyond its last progress
		// event.
		part := len(p.file) / (rounds + 1)
		after := r*part + rand.IntN(part)
		eventually(t, 2*time.Minute, "enough of the round is imported", func() bool {
			look()
			return i.Processed > 0 && i.Processed >= after
		})
		moment := time.NewTimer(rand.N(100 * time.Millisecond)) // roughly the time to import one batch
		select {
		case <-moment.C:
		case <-ctx.Done():
		}
		n.kill()
		n.launch()
		look()
		if i.Status == "in_progress" && i.Counts.Total > 0 {
			within++
		}
		if sum := i.Counts; sum.Created+sum.Updated+sum.Skipped+sum.Failed != sum.Total {
			t.Errorf("after kill %d the counts are %+v", r+1, sum)
		}
	}
	if within == 0 {
		t.Error("no kill came while rows were imported: the test tested nothing")
	}
	eventually(t, 3*time.Minute, "the import ends", func() bool {
		look()
		return i.Status == "completed" || i.Status == "failed"
	})
	if i.Status != "completed" || i.Counts != p.counts || i.Processed != len(p.file) {
		t.Errorf("the import is %+v, want counts %+v and %d bytes", i, p.counts, len(p.file))
	}
	n.checkPeople(p, segment, id)
	t.Logf("%d kills, %d of them while rows were imported; %+v", rounds, within, i.Counts)
}

// checkPeople compares the team's contacts, the segment and the failed rows with the expected result.
func (n *node) checkPeople(p *people, segment, importID string) {
	n.t.Helper()
	var text, members string
	n.must(http.MethodGet, "/contacts/export?format=ndjson", "", &text)
	n.must(http.MethodGet, "/contacts/export?format=ndjson&segment_id="+segment, "", &members)
	if members != text {
		n.t.Errorf("the segment has %d contacts, the team has %d", strings.Count(members, "\n"), strings.Count(text, "\n"))
	}
	left, wrong := len(p.contacts), 0
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		var c person
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			n.t.Fatalf("%s: %v", line, err)
		}
		want, found := p.contacts[c.Email]
		if !found || seen[c.Email] {
			n.t.Errorf("%s is there, once more or without a row", c.Email)
			continue
		}
		seen[c.Email] = true
		left--
		within := len(c.Segments) == 1 && c.Segments[0].ID == segment
		c.Segments = nil
		if diff := cmp.Diff(want, c); diff != "" || !within {
			if wrong++; wrong <= 3 {
				n.t.Errorf("%s, in the segment: %v: %s", c.Email, within, diff)
			}
		}
	}
	if left != 0 || wrong > 3 {
		n.t.Errorf("%d contacts are not there, and %d are not as they should be", left, wrong)
	}
	var failures string
	n.must(http.MethodGet, "/contacts/imports/"+importID+"/failures", "", &failures)
	kept, err := csv.NewReader(strings.NewReader(failures)).ReadAll()
	if err != nil || len(kept) == 0 {
		n.t.Fatalf("read the failed rows: %v", err)
	}
	var lines []string
	for _, row := range kept[1:] {
		lines = append(lines, row[0])
	}
	if !slices.Equal(lines, p.failed) {
		n.t.Errorf("failed rows: %s", cmp.Diff(p.failed, lines))
	}
}
