package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

func contactsCommand() command {
	return command{use: "contacts", group: groupEmail, short: "import contacts from a CSV file",
		long:    "Manages the contacts of a team through the API of a node.",
		example: "postrider contacts import people.csv",
		sub: []command{{use: "import FILE", short: "import contacts from a CSV file",
			long: "Uploads a CSV file and shows the progress until the import has ended. FILE may be - for standard " +
				"input. Without --map and --property, the columns named like the fields are imported: email, first_name, " +
				"last_name and unsubscribed.",
			example: "postrider contacts import people.csv --map email=Email --property plan=Plan --failures failed.csv",
			define: func(flags *pflag.FlagSet) runner {
				m := newImporter(flags)
				return func(ctx context.Context, e *env, words []string) error { return importContacts(ctx, e, m, words[0]) }
			}}}}
}

const watchTries = 10 // number of consecutive failures after which the command stops watching an import

// importContacts imports a file through a node's API.
func importContacts(ctx context.Context, e *env, m *importer, path string) error {
	if err := m.use(e, path); err != nil {
		return err
	}
	importID, err := m.upload(ctx)
	if err != nil {
		return err
	}
	last, err := m.watch(ctx, importID)
	if err != nil {
		return fmt.Errorf("%w; the import %s continues on the server", err, importID)
	}
	return m.conclude(ctx, last)
}

// importer imports one file.
type importer struct {
	e          *env
	given      *string // URL given by a flag
	base, key  string
	path       string
	onConflict string
	columns    map[string]string
	properties map[string]map[string]string
	segments   []map[string]string
	topics     []map[string]string
	failures   string // file for the failed rows, or ""
	bar        progress
}

// newImporter adds the flags of an importer, which are complete after its method use.
func newImporter(flags *pflag.FlagSet) *importer {
	m := &importer{columns: map[string]string{}, properties: map[string]map[string]string{}}
	m.given = addURLFlag(flags)
	flags.StringVar(&m.key, "api-key", "",
		"API `key` with full access; the default is POSTRIDER_API_KEY or RESEND_API_KEY")
	flags.StringVar(&m.onConflict, "on-conflict", "",
		"upsert or skip: upsert updates existing contacts, skip leaves them unchanged")
	oneOf(flags, "on-conflict", "upsert", "skip")
	flags.StringVar(&m.failures, "failures", "", "`file` for the failed rows, as CSV")
	flags.Func("map", "`FIELD=COLUMN`: the column with the values of a field", func(text string) error {
		field, column, ok := strings.Cut(text, "=")
		if !ok || !slices.Contains([]string{"email", "first_name", "last_name", "unsubscribed"}, field) {
			return errors.New("write FIELD=COLUMN; FIELD is email, first_name, last_name or unsubscribed")
		}
		m.columns[field] = column
		return nil
	})
	const property = "`KEY[:TYPE]=COLUMN`: the column with the values of a contact property"
	flags.Func("property", property, func(text string) error {
		name, column, ok := strings.Cut(text, "=")
		name, kind, _ := strings.Cut(name, ":")
		if !ok || name == "" {
			return errors.New("write KEY=COLUMN or KEY:TYPE=COLUMN, such as seats:number=Seats")
		}
		m.properties[name] = map[string]string{"column": column, "type": cmp.Or(kind, "string")}
		return nil
	})
	flags.Func("segment", "`ID` of a segment to which the contacts are added", func(text string) error {
		m.segments = append(m.segments, map[string]string{"id": text})
		return nil
	})
	flags.Func("topic", "`ID=opt_in|opt_out`: the contacts' subscription to a topic", func(text string) error {
		topicID, choice, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("write ID=opt_in or ID=opt_out; ID is the id of the topic")
		}
		m.topics = append(m.topics, map[string]string{"id": topicID, "subscription": choice})
		return nil
	})
	return m
}

// use completes the importer for a file.
func (m *importer) use(e *env, path string) error {
	m.e, m.path, m.bar = e, path, progress{w: e.errOut, terminal: isTerminal(e.errOut)}
	if m.key = e.apiKey(m.key); m.key == "" {
		return errNoKey
	}
	base := baseURL(e, *m.given)
	if u, err := url.Parse(base); err != nil || u.Host == "" {
		return usagef("--url %q must be a URL such as http://127.0.0.1:3000", base)
	}
	m.base = strings.TrimRight(base, "/")
	return nil
}

// fields returns the fields of the upload form, except for the file.
func (m *importer) fields() (map[string]string, error) {
	all := map[string]string{}
	if m.onConflict != "" {
		all["on_conflict"] = m.onConflict
	}
	columns := map[string]any{}
	for field, column := range m.columns {
		columns[field] = column
	}
	if len(m.properties) > 0 {
		columns["properties"] = m.properties
		if len(m.columns) == 0 { // without column_map.fields the server would import only the properties
			return nil, usageError("--property needs --map: name the columns of the fields too")
		}
	}
	for name, value := range map[string]any{"column_map": columns, "segments": m.segments, "topics": m.topics} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		if s := string(text); s != "null" && s != "{}" {
			all[name] = s
		}
	}
	return all, nil
}

// upload sends the file and returns the id of its import.
func (m *importer) upload(ctx context.Context) (importID string, err error) {
	fields, err := m.fields()
	if err != nil {
		return "", err
	}
	file, name := io.ReadCloser(io.NopCloser(os.Stdin)), "stdin.csv"
	if m.path != "-" {
		if file, err = os.Open(m.path); err != nil {
			return "", err
		}
		name = filepath.Base(m.path)
	}
	defer file.Close()
	body, to := io.Pipe()
	form := multipart.NewWriter(to)
	go func() { to.CloseWithError(writeForm(form, fields, name, file)) }()
	defer body.Close() // also ends the goroutine that runs writeForm
	answer, err := m.ask(ctx, http.MethodPost, "", form.FormDataContentType(), body)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var made struct{ ID string }
	if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || made.ID == "" {
		return "", fmt.Errorf("the server's response has no import id: %v", err)
	}
	return made.ID, nil
}

func writeForm(form *multipart.Writer, fields map[string]string, name string, file io.Reader) error {
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if err := form.WriteField(field, fields[field]); err != nil {
			return err
		}
	}
	part, err := form.CreateFormFile("file", name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(part, file); err != nil {
		return err
	}
	return form.Close()
}

// ask makes a request to the import API, and returns an error for any status other than 2xx. The error is a refusal if
// a retry would not help.
func (m *importer) ask(ctx context.Context, method, path, mediaType string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, m.base+"/contacts/imports"+path, body)
	if err != nil {
		return nil, fmt.Errorf("send the request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+m.key)
	r.Header.Set("User-Agent", "postrider-contacts/"+Version)
	if mediaType != "" {
		r.Header.Set("Content-Type", mediaType)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 2000))
	var said struct{ Message string }
	if json.Unmarshal(text, &said) != nil || said.Message == "" {
		said.Message = answer.Status
	}
	if s := answer.StatusCode; s/100 == 4 && s != http.StatusTooManyRequests {
		return nil, refusal(said.Message)
	}
	return nil, errors.New(said.Message)
}

// watched is the state of an import, as the API returns it.
type watched struct {
	ID        string
	Status    string
	Size      int64
	Processed int64
	Error     string
	Counts    struct{ Total, Created, Updated, Skipped, Failed int64 }
}

// importObject is an import that has ended, in JSON.
type importObject struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Rows    int64  `json:"rows"`
	Created int64  `json:"created"`
	Updated int64  `json:"updated"`
	Skipped int64  `json:"skipped"`
	Failed  int64  `json:"failed"`
}

// watch shows the progress of an import until it ends.
func (m *importer) watch(ctx context.Context, importID string) (last watched, err error) {
	defer m.bar.end()
	for failed := 0; ; {
		before := last.Processed
		if err = m.stream(ctx, importID, &last); err == nil || ctx.Err() != nil {
			return last, cmp.Or(ctx.Err(), err)
		}
		if _, final := errors.AsType[refusal](err); final {
			return last, err
		}
		if failed++; last.Processed > before {
			failed = 0
		}
		if failed == watchTries {
			return last, fmt.Errorf("could not watch the progress: %w", err)
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// stream reads the progress events of an import and stores the latest state in last. The result is nil when the import
// has ended, or an error if the connection ends first.
func (m *importer) stream(ctx context.Context, importID string, last *watched) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(silence, func() { cancel(errors.New("the server was silent for too long")) })
	defer alive.Stop()
	answer, err := m.ask(ctx, http.MethodGet, "/"+importID+"/events", "", nil)
	if err != nil {
		return ended(ctx, err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	done := false
	for lines.Scan() {
		alive.Reset(silence)
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "event":
			done = value == "done"
		case name == "data":
			if err := json.Unmarshal([]byte(value), last); err != nil {
				return refusal("could not parse an event of the server: " + err.Error())
			}
			m.bar.show(last)
			if done {
				return nil
			}
		}
	}
	return ended(ctx, cmp.Or(lines.Err(), errors.New("the server closed the stream")))
}

// conclude prints the row counts of an import and writes the failed rows to a file. If the import or any of its rows
// failed, conclude returns an error.
func (m *importer) conclude(ctx context.Context, i watched) error {
	c := i.Counts
	if err := m.e.done(importObject{i.ID, i.Status, c.Total, c.Created, c.Updated, c.Skipped, c.Failed},
		fmt.Sprintf("%d rows: %d created, %d updated, %d skipped, %d failed", c.Total, c.Created, c.Updated, c.Skipped,
			c.Failed)); err != nil {
		return err
	}
	var failed error
	if c.Failed > 0 && m.failures == "" {
		failed = fmt.Errorf("%d rows failed; see GET /contacts/imports/%s/failures, or use --failures FILE next time",
			c.Failed, i.ID)
	}
	if c.Failed > 0 && m.failures != "" {
		if err := m.fetchFailures(ctx, i.ID); err != nil {
			return fmt.Errorf("write the failed rows: %w", err)
		}
		failed = fmt.Errorf("%d rows failed; %s says why", c.Failed, m.failures)
	}
	if i.Status != "completed" {
		return fmt.Errorf("the import failed: %s", i.Error)
	}
	return failed
}

func (m *importer) fetchFailures(ctx context.Context, importID string) error {
	answer, err := m.ask(ctx, http.MethodGet, "/"+importID+"/failures", "", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	// Only its owner may read the file, because the failed rows contain email addresses.
	file, err := os.OpenFile(m.failures, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, answer.Body)
	return errors.Join(err, file.Close())
}

// progress shows the progress of an import. On a terminal, the progress is drawn as a bar. Any other output gets one
// line for every 10% of progress.
type progress struct {
	w        io.Writer
	terminal bool
	shown    int64 // number of tenths of the import for which a line has been printed
	drawn    bool
}

const barWidth = 30

func (p *progress) show(i *watched) {
	part := int64(0)
	if i.Size > 0 {
		part = min(100*i.Processed/i.Size, 100)
	}
	text := fmt.Sprintf("%3d%%  %d rows, %d failed", part, i.Counts.Total, i.Counts.Failed)
	switch {
	case p.terminal:
		full := int(part) * barWidth / 100
		// The escape sequence clears the rest of the line (ECMA-48, EL).
		fmt.Fprintf(p.w, "\r[%s%s] %s\x1b[K", strings.Repeat("#", full), strings.Repeat(" ", barWidth-full), text)
		p.drawn = true
	case part/10 > p.shown:
		p.shown = part / 10
		fmt.Fprintln(p.w, text)
	}
}

// end writes a newline after the progress bar.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprintln(p.w)
	}
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
