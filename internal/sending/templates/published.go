package templates

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/render"
)

const (
	hintTopic  = "templates"
	cacheFor   = time.Second // maximum age of cached data if the hint about a change is lost
	cacheCount = 10_000      // names of templates
	cacheBytes = 16 << 20
)

// PublishedTemplate is the published version of a template, compiled for rendering.
type PublishedTemplate struct {
	TemplateID string
	Content    *content.Compiled

	variables []Variable
}

// Given holds the values that a caller gives for variables, by name.
type Given = map[string]scalar.Value

// Values returns the value of each variable that the version declares: the given value or, if none is given, the
// fallback. If a variable has neither a given value nor a fallback, but all its placeholders have fallbacks, the
// variable has no value. Values for undeclared variables are ignored. Errors name the invalid member of
// template.variables.
func (s *PublishedTemplate) Values(given map[string]scalar.Value) (render.Values, error) {
	return valuesFor(s.Content, s.variables, given, "template.variables")
}

// Convert returns the given values, converted to the types of the declared variables as far as the conversion is exact;
// see [scalar.Value.As].
func (s *PublishedTemplate) Convert(given map[string]scalar.Value) map[string]scalar.Value {
	all := maps.Clone(given)
	for _, d := range s.variables {
		if v, ok := all[d.Key]; ok {
			all[d.Key], _ = v.As(d.Type)
		}
	}
	return all
}

// CheckGiven returns a fault if a declared variable cannot have its given value, and the variable's key. CheckGiven
// does not require that all variables are given.
func (s *PublishedTemplate) CheckGiven(prefix string, given map[string]scalar.Value) (key string, err error) {
	for _, d := range s.variables {
		if v, ok := given[d.Key]; ok {
			if err := v.Check(prefix+d.Key, d.Type); err != nil {
				return d.Key, err
			}
		}
	}
	return "", nil
}

// Overrides are fields that an email sets itself, in place of those of its template. Empty fields are not set.
type Overrides struct {
	From, Subject string
	ReplyTo       []string
}

// CheckOverrides returns a fault if a placeholder in the overrides is not well formed, or if it would have neither a
// value nor a fallback. The map values has the values that are known; a nil map means that the values are not known
// yet. Field names in errors begin with the given prefix.
func (s *PublishedTemplate) CheckOverrides(prefix string, o Overrides, values render.Values) error {
	for i, text := range append([]string{o.From, o.Subject}, o.ReplyTo...) {
		field := prefix + []string{"from", "subject", "reply_to"}[min(i, 2)]
		if err := content.CheckPlaceholders(field, text); err != nil {
			return err
		}
		t := render.Compile(text)
		for _, name := range t.Required() {
			if _, given := values[name]; given || IsReserved(name) || render.IsContactField(name) {
				continue
			}
			declared := slices.ContainsFunc(s.variables, func(d Variable) bool { return d.Key == name })
			switch {
			case !declared:
				return fault.Invalidf(field, "The `%s` field uses the variable %s, which the template does not declare. Declare "+
					"it there, correct its name, or write {{{%s|fallback}}}.", field, name, name)
			case values != nil:
				return fault.Invalidf(field, "The `%s` field uses the variable %s, which is not given and has no fallback: give "+
					"it in `template.variables.%s`.", field, name, name)
			}
		}
	}
	return nil
}

// MissingVariable returns a variable that [PublishedTemplate.Values] requires but that is not among the given names. If
// no variable is missing, MissingVariable returns "".
func (s *PublishedTemplate) MissingVariable(names []string) string {
	for _, d := range s.variables {
		if d.Fallback == (scalar.Value{}) && !s.Content.Optional(d.Key) && !slices.Contains(names, d.Key) {
			return d.Key
		}
	}
	return ""
}

// Published returns the published version of the template with the given id or alias. If the template does not exist,
// Published returns a NotFound fault. If the template has never been published, Published returns an Invalid fault.
func (s *Service) Published(ctx context.Context, teamID, idOrAlias string) (*PublishedTemplate, error) {
	p, err := s.published(ctx, teamID, idOrAlias)
	if err != nil {
		return nil, err
	}
	c, err := s.contents.Get(ctx, teamID, p.contentID)
	if fault.KindOf(err) == fault.NotFound {
		return nil, notFound().Because(err) // the template was deleted, and the hint to the cache was lost
	}
	if err != nil {
		return nil, err
	}
	return &PublishedTemplate{p.templateID, c, p.variables}, nil
}

func (s *Service) published(ctx context.Context, teamID, idOrAlias string) (published, error) {
	if id.Valid(idOrAlias) {
		idOrAlias = strings.ToLower(idOrAlias)
	} else if !isAlias(idOrAlias) {
		return published{}, notFound()
	}
	p, changes, ok := s.cache.get(teamID, idOrAlias)
	if ok {
		return p, nil
	}
	p, err := getPublished(ctx, s.d.Reader, teamID, idOrAlias)
	if err != nil {
		return p, err
	}
	if p.versionID == "" {
		return p, unpublished()
	}
	s.cache.put(teamID, idOrAlias, p, changes)
	return p, nil
}

func unpublished() error {
	return fault.Invalidf("template.id",
		"The template has not been published (`template.id`). Publish it first: POST /templates/{id}/publish.")
}

// changed removes a team's templates from the caches of all nodes when the transaction commits.
func (s *Service) changed(tx *db.Tx, teamID string) {
	tx.AfterCommit(func() { s.d.Hint(hintTopic, teamID) })
}

// cache holds published versions, keyed by team and by template id or alias. Expired entries are removed once a second.
type cache struct {
	mu      sync.Mutex
	teams   map[string]map[string]cachedVersion
	n       int
	bytes   int
	swept   time.Time // the last sweep
	changes uint64    // number of calls to forget
}

type cachedVersion struct {
	published
	until time.Time
}

func (c *cache) clear() { c.teams, c.n, c.bytes = map[string]map[string]cachedVersion{}, 0, 0 }

// get returns the cached version and the number of changes so far. If get returns ok == false, the caller should read
// the version from the database and pass the version and that number to put.
func (c *cache) get(teamID, name string) (p published, changes uint64, ok bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.teams[teamID][name]
	return r.published, c.changes, ok && now.Before(r.until)
}

// put caches a version, unless forget was called after get returned changes. If forget was called after get, the
// version may be outdated.
func (c *cache) put(teamID, name string, p published, changes uint64) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes != changes {
		return
	}
	if now.Sub(c.swept) >= cacheFor {
		c.sweep(now)
	}
	c.drop(teamID, name)
	if c.n++; c.n > cacheCount || c.bytes+p.weight() > cacheBytes {
		c.clear()
		c.n = 1
	}
	c.bytes += p.weight()
	of := c.teams[teamID]
	if of == nil {
		of = map[string]cachedVersion{}
		c.teams[teamID] = of
	}
	of[name] = cachedVersion{p, now.Add(cacheFor)}
}

// sweep removes expired entries from the cache.
func (c *cache) sweep(now time.Time) {
	c.swept = now
	for teamID, of := range c.teams {
		for name, r := range of {
			if !now.Before(r.until) {
				c.drop(teamID, name)
			}
		}
	}
}

func (c *cache) drop(teamID, name string) {
	of := c.teams[teamID]
	r, ok := of[name]
	if !ok {
		return
	}
	c.n--
	c.bytes -= r.weight()
	delete(of, name)
	if len(of) == 0 {
		delete(c.teams, teamID)
	}
}

// forget removes a team's templates from the cache.
func (c *cache) forget(teamID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.teams[teamID] {
		c.drop(teamID, name)
	}
	c.changes++
}

// weight estimates the memory used by a cached version, in bytes. The estimate never exceeds about 500 KB.
func (p *published) weight() int {
	n := 512
	for i := range p.variables {
		n += 256 + len(p.variables[i].Key) + len(p.variables[i].Fallback.Text)
	}
	return n
}

// Rendered is a rendered template.
type Rendered struct {
	From    string // empty if the template has no sender
	Subject string // empty if the template has no subject
	ReplyTo []string
	HTML    string
	Text    string // derived from the HTML if the template has no text

	reservation
}

// RenderOptions specifies the version to render and its values.
type RenderOptions struct {
	Version   string // "published" or empty, "draft" for the newest, or an id or number
	Variables map[string]scalar.Value
	From      string // if not empty, replaces the template's sender; its placeholders are filled too

	UnsubscribeURL string // empty for an email without a topic
}

// Render renders a version of a template according to the same rules as an email that is sent with the version. Errors
// name an invalid member of variables, or the field that is invalid after rendering. If the rendered HTML and text
// would exceed 10 MB or the maximum size of an email, Render returns an error without rendering them. The caller must
// close the result.
func (s *Service) Render(ctx context.Context, teamID, idOrAlias string, how RenderOptions) (Rendered, error) {
	t, v, err := getCurrent(ctx, s.d.Reader, teamID, idOrAlias)
	if err != nil {
		return Rendered{}, err
	}
	switch {
	case how.Version == "" || how.Version == "published":
		if !t.Published() {
			return Rendered{}, fault.Invalidf("version",
				"The template has not been published. Publish it first, or render the version `draft`.")
		}
		if v.ID != t.PublishedID {
			v, err = getVersion(ctx, s.d.Reader, teamID, t.ID, t.PublishedID)
		}
	case how.Version == "draft":
	default:
		v, err = s.version(ctx, &t, how.Version)
	}
	if err == nil {
		err = s.readOne(ctx, &v)
	}
	if err != nil {
		return Rendered{}, err
	}
	defer v.Close()
	if how.From != "" {
		v.Text.From = how.From
	}
	c := content.Compile(v.Text.content(teamID))
	values, err := valuesFor(c, v.Variables, how.Variables, "variables")
	if err != nil {
		return Rendered{}, err
	}
	if how.UnsubscribeURL != "" {
		values[render.UnsubscribeURL] = how.UnsubscribeURL
	}
	own := &PublishedTemplate{variables: v.Variables}
	if err := own.CheckOverrides("", Overrides{From: how.From}, values); err != nil {
		return Rendered{}, err
	}
	return s.fill(ctx, c, values)
}

// fill renders content and checks the rules that depend on the values.
func (s *Service) fill(ctx context.Context, c *content.Compiled, values render.Values) (r Rendered, err error) {
	if err := c.CheckLines(values); err != nil {
		return r, err
	}
	size := c.Size(values)
	if size > s.maxRendered {
		return r, fault.Invalidf("html", "The `html` and `text` fields would have %d bytes in all once they are filled; the "+
			"limit is %d.", size, s.maxRendered)
	}
	if c.Empty(values) {
		return r, fault.New(fault.Missing, "html", "Nothing is left of the `html` and `text` fields once the variables are "+
			"filled in.")
	}
	r.From, r.Subject, r.ReplyTo = c.From(values), c.Subject(values), c.ReplyTo(values)
	if r.From != "" {
		if err := parseMailbox("from", r.From, message.ParseFrom); err != nil {
			return r, err
		}
	}
	if err := checkSubject(r.Subject); err != nil {
		return r, err
	}
	for _, text := range r.ReplyTo {
		if err := parseMailbox("reply_to", text, message.ParseAddress); err != nil {
			return r, err
		}
	}
	if r.reservation, err = reserve(ctx, s.memory.rendered, c.TeamID, size); err != nil {
		return r, err
	}
	r.HTML, r.Text = c.Bodies(values)
	return r, nil
}
