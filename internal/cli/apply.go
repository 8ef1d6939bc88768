package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/client"
	"github.com/postrider/postrider/internal/cli/apply"
)

func applyCommand() command {
	return command{use: "apply FILE", group: groupPeople, short: "make a team's set-up the one that a file describes",
		long: "Makes the domains, forwarding rules, contact properties, topics, segments, templates, webhooks and API keys " +
			"of a team those that FILE describes, through the API of a node. FILE is a TOML file, or a folder with such files. " +
			"--plan shows the changes without making them. Resources that FILE never named stay as they are.",
		example: "postrider apply team.toml --plan\npostrider apply team.toml --secrets-file secrets.json\n" +
			"postrider apply team.toml --drift --url https://mail.example.com --api-key-file key.txt",
		define: func(flags *pflag.FlagSet) runner {
			var o applyOptions
			base := addURLFlag(flags)
			flags.StringVar(&o.key, "api-key", "",
				"API `key` with full access; the default is POSTRIDER_API_KEY or RESEND_API_KEY")
			flags.StringVar(&o.keyFile, "api-key-file", "", "`file` with the API key")
			flags.BoolVar(&o.plan, "plan", false, "show the changes, and make none")
			flags.BoolVar(&o.drift, "drift", false, "show the changes, make none, and exit with code 1 if there are any")
			flags.BoolVar(&o.prune, "prune", false, "delete resources that the last run named and FILE no longer names")
			flags.StringVar(&o.secrets, "secrets-file", "",
				"`file` that gets the new tokens and signing secrets, with mode 0600; by default, they are printed")
			flags.StringVar(&o.state, "state", "", "state `file`; the default is FILE.state.json")
			return func(ctx context.Context, e *env, words []string) error {
				o.base, o.path = baseURL(e, *base), words[0]
				err := applyFile(ctx, e, o)
				if err != nil && o.drift && !errors.Is(err, errReported) {
					err = &exitError{2, err} // 1 means that the team differs
				}
				return err
			}
		}}
}

// applyOptions are the flags and the argument of the command apply.
type applyOptions struct {
	base, key, keyFile, path, state, secrets string
	plan, drift, prune                       bool
}

// applyResult is the result of the command in JSON.
type applyResult struct {
	TeamID  string         `json:"team_id"`
	Applied bool           `json:"applied"` // whether the changes were made
	Changes []apply.Change `json:"changes"`
	Left    []apply.Left   `json:"left"` // resources that --prune would delete
	Secrets []apply.Secret `json:"secrets"`
	Notes   []string       `json:"notes"`
}

func applyFile(ctx context.Context, e *env, o applyOptions) error {
	api, err := applyClient(e, o)
	if err != nil {
		return err
	}
	// The state file is next to FILE, also if FILE is "." or "..". Symbolic links are not resolved, so that a link to
	// the newest release keeps its state.
	absolute, err := filepath.Abs(o.path)
	if err != nil {
		return fmt.Errorf("find the folder of %s: %w", o.path, err)
	}
	o.path, o.state = filepath.Clean(o.path), cmp.Or(o.state, absolute+".state.json")
	changing := !o.plan && !o.drift
	if changing {
		unlock, err := apply.Lock(o.path)
		if err != nil {
			return err
		}
		defer unlock()
	}
	setup, err := apply.Load(o.path)
	if err != nil {
		return err
	}
	p, err := apply.New(ctx, setup, apply.Options{API: api, State: o.state, Prune: o.prune})
	if err != nil {
		return err
	}
	r := &applyRun{e: e, plan: p, secrets: o.secrets, result: applyResult{TeamID: p.TeamID,
		Secrets: []apply.Secret{}, Notes: []string{}}}
	if !e.json {
		writePlan(e.out, p)
	}
	if changing {
		err = r.apply(ctx)
	}
	if e.json {
		r.result.Changes, r.result.Left = emptyIfNil(p.Changes), emptyIfNil(p.Left)
		err = errors.Join(err, encode(e.out, r.result))
	}
	if err == nil && o.drift && len(p.Changes) > 0 {
		return errReported
	}
	return err
}

func emptyIfNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// applyClient returns a client for the given URL and key.
func applyClient(e *env, o applyOptions) (*client.Client, error) {
	if o.keyFile != "" {
		if o.key != "" {
			return nil, usageError("give either --api-key or --api-key-file")
		}
		text, err := os.ReadFile(o.keyFile)
		if err != nil {
			return nil, fmt.Errorf("read the API key: %w", err)
		}
		if o.key = strings.TrimSpace(string(text)); o.key == "" {
			return nil, fmt.Errorf("read the API key: %s is empty", o.keyFile)
		}
	}
	key := e.apiKey(o.key)
	if key == "" {
		return nil, errNoKey
	}
	c, err := client.New(o.base, key, client.WithUserAgent("postrider-apply/"+Version), client.WithRetries(10))
	if err != nil {
		return nil, usageError(err.Error())
	}
	return c, nil
}

// applyRun makes the changes of a plan.
type applyRun struct {
	e       *env
	plan    *apply.Plan
	secrets string // file for secrets, or ""
	result  applyResult
}

func (r *applyRun) apply(ctx context.Context) error {
	if r.secrets != "" { // a file that cannot be written must not cost a token
		if err := r.writeSecret(nil); err != nil {
			return err
		}
	}
	err := r.plan.Apply(ctx, apply.Events{
		Done: func(c *apply.Change, note string) {
			if note != "" {
				r.result.Notes = append(r.result.Notes, note)
				r.print("%s\n", note)
			}
		},
		Secret: func(s apply.Secret) error {
			if r.secrets != "" {
				return r.writeSecret(&s)
			}
			r.result.Secrets = append(r.result.Secrets, s)
			out := r.e.out
			if r.e.json { // the result comes after the last change, and a kill before it must not cost the secret
				out = r.e.errOut
			}
			_, err := fmt.Fprintf(out, "The secret of %s %s, which is shown only once: %s\n", s.Kind, s.Name, s.Value)
			return err
		}})
	if err != nil {
		return err
	}
	r.result.Applied = true
	if n := len(r.plan.Changes); n > 0 {
		return r.print("Changes made: %d.\n", n)
	}
	return nil
}

// print writes a line unless the result is JSON.
func (r *applyRun) print(format string, args ...any) error {
	if r.e.json {
		return nil
	}
	_, err := fmt.Fprintf(r.e.out, format, args...)
	return err
}

// writeSecret adds a secret to the file for secrets, which is an object of objects: kinds, names and secrets. For nil,
// it only checks that the file can be written.
func (r *applyRun) writeSecret(s *apply.Secret) error {
	all := map[string]map[string]string{}
	text, err := os.ReadFile(r.secrets)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the file for secrets: %w", err)
	}
	if s != nil {
		if all[s.Kind] == nil {
			all[s.Kind] = map[string]string{}
		}
		all[s.Kind][s.Name] = s.Value
	}
	if text, err = json.MarshalIndent(all, "", "  "); err == nil {
		err = apply.WriteFile(r.secrets, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the file for secrets: %w", err)
	}
	return nil
}

// marks are the signs before changes.
var marks = map[apply.Action]string{apply.Create: "+", apply.Update: "~", apply.Delete: "-", apply.Replace: "±"}

// maxShown is the maximum length of a value in the plan, in characters.
const maxShown = 60

// writePlan writes a plan as text.
func writePlan(w io.Writer, p *apply.Plan) {
	count := map[apply.Action]int{}
	for _, c := range p.Changes {
		count[c.Action]++
		fmt.Fprintf(w, "%s %s %s", marks[c.Action], c.Kind, c.Name)
		if c.Action == apply.Replace {
			fmt.Fprint(w, " (nobody saw its token, because a run was interrupted)")
		}
		fmt.Fprintln(w)
		for _, f := range c.Fields {
			fmt.Fprintf(w, "    %s: %s → %s\n", f.Field, shorten(f.From), shorten(f.To))
		}
	}
	for _, l := range p.Left {
		fmt.Fprintf(w, "? %s %s is no longer in the file; --prune deletes it\n", l.Kind, l.Name)
	}
	if len(p.Changes) == 0 {
		fmt.Fprintln(w, "No changes: the team matches the file.")
		return
	}
	fmt.Fprintf(w, "Plan: %d to create, %d to change, %d to replace, %d to delete.\n", count[apply.Create],
		count[apply.Update], count[apply.Replace], count[apply.Delete])
}

// shorten returns a value as JSON of at most maxShown characters.
func shorten(v any) string {
	var b strings.Builder
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	if err := to.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if r := []rune(text); len(r) > maxShown {
		return string(r[:maxShown-1]) + "…"
	}
	return text
}
