package templates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/content"
)

// triesMax is the maximum number of times that a change is computed if other changes are made concurrently. Each time
// that concurrent changes are computed, at least one of them succeeds.
const triesMax = 100

// Service implements the operations on templates.
type Service struct {
	d        *db.DB
	contents *content.Service
	cache    cache
	memory   memory

	maxRendered int64 // bytes
}

// New returns a service that stores the content of versions through the service contents. The parameter maxEmail is the
// maximum size of an email, in bytes.
func New(d *db.DB, contents *content.Service, maxEmail int64) *Service {
	s := &Service{d: d, contents: contents, memory: newMemory(), maxRendered: min(maxEmail, maxRendered)}
	s.cache.clear()
	d.OnHint(hintTopic, s.cache.forget)
	return s
}

// Create adds a template with a first version, which is not yet published.
func (s *Service) Create(ctx context.Context, teamID string, n NewTemplate) (Template, error) {
	if err := n.Check(); err != nil {
		return Template{}, err
	}
	return s.create(ctx, Template{TeamID: teamID, Name: n.Name, Alias: n.Alias}, n.text(), n.Variables)
}

// Check returns the fault that Create would return, except for an alias that another template has.
func (s *Service) Check(n NewTemplate) error { return n.Check() }

// Check returns the fault that Create would return, except for an alias that another template has.
func (n *NewTemplate) Check() error {
	if err := checkName(n.Name); err != nil {
		return err
	}
	if n.HTML == nil {
		return fault.MissingField("html")
	}
	if err := checkAlias(n.Alias); err != nil {
		return err
	}
	text := n.text()
	if err := text.check(); err != nil {
		return err
	}
	return checkDeclarations(n.Variables)
}

// CheckPublish returns the fault that Publish would return for a template with this content. The content must be valid.
func (n *NewTemplate) CheckPublish() error {
	v := Version{Text: n.text(), Variables: declare(nil, n.Variables, time.Time{})}
	return v.checkPublish()
}

// text returns the content of the first version. The HTML must be set.
func (n *NewTemplate) text() Text {
	return Text{From: n.From, Subject: n.Subject, ReplyTo: n.ReplyTo, HTML: *n.HTML, Plain: n.Text}
}

func (s *Service) create(ctx context.Context, t Template, text Text, variables []Declaration) (Template, error) {
	err := s.d.Update(ctx, func(tx *db.Tx) error {
		now := tx.Now()
		t.ID, t.CreatedAt, t.UpdatedAt = id.At(now), now, now
		t.versions, t.revision = 0, 1
		v := Version{Variables: declare(nil, variables, now), Text: text}
		if err := s.addVersion(ctx, tx, &t, &v); err != nil {
			return err
		}
		insertTemplate(ctx, tx, &t)
		audit.Target(ctx, t.ID)
		s.changed(tx, t.TeamID)
		return nil
	})
	return t, s.taken(err, t.Alias)
}

// addVersion inserts the next version of a template and makes it the newest version in t. The caller must store t
// afterwards.
func (s *Service) addVersion(ctx context.Context, tx *db.Tx, t *Template, v *Version) error {
	c := v.Text.content(t.TeamID)
	if err := s.contents.Add(ctx, tx, c); err != nil {
		return err
	}
	t.versions++
	v.ID, v.TeamID, v.TemplateID, v.Number, v.contentID = id.At(tx.Now()), t.TeamID, t.ID, t.versions, c.ID
	v.CreatedAt, t.CurrentID, t.UpdatedAt = tx.Now(), v.ID, tx.Now()
	return insertVersion(ctx, tx, v)
}

// taken converts a violation of the unique index on aliases to a fault; it returns other errors unchanged.
func (s *Service) taken(err error, alias string) error {
	if s.d.Violates(err, aliasIndex) {
		return fault.Invalidf("alias", "The `alias` %s is taken by another template. Choose another one.", alias).Because(err)
	}
	return err
}

// Get returns the template with the given id or alias, and its newest version. The caller must close the version.
func (s *Service) Get(ctx context.Context, teamID, idOrAlias string) (Template, Version, error) {
	t, v, err := getCurrent(ctx, s.d.Reader, teamID, idOrAlias)
	if err == nil {
		err = s.readOne(ctx, &v)
	}
	return t, v, err
}

// read loads the content of several versions of a template. The memory for all versions is reserved through the first
// version. The caller must close the first version, even after an error.
func (s *Service) read(ctx context.Context, all ...*Version) error {
	ids := make([]string, len(all))
	for i, v := range all {
		ids[i] = v.contentID
	}
	size, err := content.Size(ctx, s.d.Reader, all[0].TeamID, ids...)
	if err != nil {
		return err
	}
	if all[0].reservation, err = reserve(ctx, s.memory.stored, all[0].TeamID, size); err != nil {
		return err
	}
	for _, v := range all {
		c, err := content.Read(ctx, s.d.Reader, v.TeamID, v.contentID)
		if fault.KindOf(err) == fault.NotFound {
			return notFound().Because(err) // the template was deleted in the meantime
		}
		if err != nil {
			return err
		}
		v.Text = textOf(&c)
	}
	return nil
}

// readOne loads the content of a version. If readOne returns no error, the caller must close the version.
func (s *Service) readOne(ctx context.Context, v *Version) error {
	err := s.read(ctx, v)
	if err != nil {
		v.Close()
	}
	return err
}

// List returns a page of the team's templates, newest first.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Template, bool, error) {
	return listTemplates(ctx, s.d.Reader, teamID, p)
}

// Unpublished returns up to limit templates of a team whose newest version is not published, newest first.
func (s *Service) Unpublished(ctx context.Context, teamID string, limit int) ([]Template, error) {
	return listUnpublished(ctx, s.d.Reader, teamID, limit)
}

// errChanged is returned if another transaction has changed the template since it was read.
var errChanged = errors.New("the template was changed since it was read")

// change applies a change to a template. The template and its newest version are read and passed to the function plan,
// which loads the required content and computes the change. The function plan returns a function that writes the
// change, or returns nil if no change is needed. The function write runs in a transaction that has claimed the
// template. The function write modifies t, which is then stored. If another transaction has changed the template since
// it was read, change starts over. The returned template includes the change.
func (s *Service) change(ctx context.Context, teamID, idOrAlias string,
	plan func(t *Template, v *Version) (write func(tx *db.Tx, t *Template) error, err error)) (Template, error) {
	for range triesMax {
		t, err := s.changeOnce(ctx, teamID, idOrAlias, plan)
		if !errors.Is(err, errChanged) {
			return t, s.taken(err, t.Alias)
		}
		idOrAlias = t.ID // finds the same template, even if its alias has changed
	}
	return Template{}, fault.New(fault.Locked, "",
		"The template is being changed by others all the time. Try again in a moment.")
}

// changeOnce is like change but does not start over. If another transaction has changed the template since it was read,
// changeOnce returns errChanged.
func (s *Service) changeOnce(ctx context.Context, teamID, idOrAlias string,
	plan func(t *Template, v *Version) (write func(tx *db.Tx, t *Template) error, err error)) (Template, error) {
	before, v, err := getCurrent(ctx, s.d.Reader, teamID, idOrAlias)
	if err != nil {
		return before, err
	}
	defer func() { v.Close() }() // releases the memory of the content that plan has loaded
	write, err := plan(&before, &v)
	if err != nil || write == nil {
		return before, err
	}
	t := before
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		t = before
		if claimed, err := claim(ctx, tx, &t); err != nil {
			return err
		} else if !claimed {
			return errChanged
		}
		if err := write(tx, &t); err != nil {
			return err
		}
		save(ctx, tx, &t)
		audit.Target(ctx, t.ID)
		s.changed(tx, teamID)
		return nil
	})
	return t, err
}

// Update changes a template. A change to the content or the variables creates a new version, which is not published.
func (s *Service) Update(ctx context.Context, teamID, idOrAlias string, c Change) (Template, error) {
	if c.Name != nil {
		if err := checkName(*c.Name); err != nil {
			return Template{}, err
		}
	}
	if c.Alias != nil {
		if err := checkAlias(*c.Alias); err != nil {
			return Template{}, err
		}
	}
	if c.HTML != nil && *c.HTML == "" {
		return Template{}, fault.MissingField("html")
	}
	if c.Variables != nil {
		if err := checkDeclarations(*c.Variables); err != nil {
			return Template{}, err
		}
	}
	return s.change(ctx, teamID, idOrAlias, func(t *Template, v *Version) (func(*db.Tx, *Template) error, error) {
		if err := s.read(ctx, v); err != nil {
			return nil, err
		}
		text, alike := c.apply(v.Text)
		if !alike {
			if err := text.check(); err != nil {
				return nil, err
			}
		}
		same := alike && (c.Variables == nil || sameVariables(v.Variables, declare(nil, *c.Variables, v.CreatedAt)))
		if same && (c.Name == nil || *c.Name == t.Name) && (c.Alias == nil || *c.Alias == t.Alias) {
			return nil, nil
		}
		return func(tx *db.Tx, t *Template) error {
			if c.Name != nil {
				t.Name = *c.Name
			}
			if c.Alias != nil {
				t.Alias = *c.Alias
			}
			t.UpdatedAt = tx.Now()
			if same {
				return nil
			}
			next := Version{Variables: v.Variables, Text: text}
			if c.Variables != nil {
				next.Variables = declare(v.Variables, *c.Variables, tx.Now())
			}
			return s.addVersion(ctx, tx, t, &next)
		}, nil
	})
}

// apply returns the changed text and reports whether it is equal to the original.
func (c *Change) apply(t Text) (changed Text, same bool) {
	changed, same = t, true
	for _, f := range []struct {
		to   *string
		text *string
	}{{c.From, &changed.From}, {c.Subject, &changed.Subject}, {c.HTML, &changed.HTML}} {
		if f.to != nil && *f.to != *f.text {
			*f.text, same = *f.to, false
		}
	}
	if c.ReplyTo != nil && !slices.Equal(*c.ReplyTo, t.ReplyTo) {
		changed.ReplyTo, same = *c.ReplyTo, false
	}
	if c.Text != nil && !sameText(*c.Text, t.Plain) {
		changed.Plain, same = *c.Text, false
	}
	return changed, same
}

func sameText(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// Publish publishes the newest version. If the newest version is already published, Publish changes nothing.
func (s *Service) Publish(ctx context.Context, teamID, idOrAlias string) (Template, error) {
	return s.publish(ctx, teamID, idOrAlias, "")
}

// PublishVersion publishes a version that a person has read. If it is no longer the newest version, PublishVersion
// returns a Locked fault.
func (s *Service) PublishVersion(ctx context.Context, teamID, templateID, versionID string) (Template, error) {
	return s.publish(ctx, teamID, templateID, versionID)
}

// publish publishes the newest version. Unless versionID is "", it must be the id of the newest version.
func (s *Service) publish(ctx context.Context, teamID, idOrAlias, versionID string) (Template, error) {
	return s.change(ctx, teamID, idOrAlias, func(t *Template, v *Version) (func(*db.Tx, *Template) error, error) {
		if versionID != "" && v.ID != versionID {
			return nil, fault.New(fault.Locked, "", "The template was changed after you opened it. Read the new version.")
		}
		if !t.HasUnpublished() {
			return nil, nil
		}
		if err := s.read(ctx, v); err != nil {
			return nil, err
		}
		if err := v.checkPublish(); err != nil {
			return nil, err
		}
		return func(tx *db.Tx, t *Template) error {
			t.PublishedID, t.PublishedAt = t.CurrentID, tx.Now()
			setPublished(ctx, tx, teamID, t.CurrentID, tx.Now().UnixMicro())
			return nil
		}, nil
	})
}

// Restore adds a copy of an older version as the newest version, but does not publish it. If the newest version is
// already identical to the older one, Restore changes nothing.
func (s *Service) Restore(ctx context.Context, teamID, idOrAlias, version string) (Template, error) {
	return s.change(ctx, teamID, idOrAlias, func(t *Template, v *Version) (func(*db.Tx, *Template) error, error) {
		old, err := s.version(ctx, t, version)
		if err == nil {
			err = s.read(ctx, v, &old)
		}
		if err != nil {
			return nil, err
		}
		if sameVariables(old.Variables, v.Variables) && old.Text.equal(&v.Text) {
			return nil, nil
		}
		return func(tx *db.Tx, t *Template) error {
			return s.addVersion(ctx, tx, t, &Version{Variables: old.Variables, Text: old.Text})
		}, nil
	})
}

func (t *Text) equal(u *Text) bool {
	return t.From == u.From && t.Subject == u.Subject && slices.Equal(t.ReplyTo, u.ReplyTo) && t.HTML == u.HTML &&
		sameText(t.Plain, u.Plain)
}

// Duplicate adds a template with a copy of another template's newest version. The new template is not published and has
// no alias.
func (s *Service) Duplicate(ctx context.Context, teamID, idOrAlias string) (Template, error) {
	t, v, err := s.Get(ctx, teamID, idOrAlias)
	if err != nil {
		return t, err
	}
	defer v.Close()
	variables := make([]Declaration, len(v.Variables))
	for i, d := range v.Variables {
		variables[i] = Declaration{d.Key, string(d.Type), d.Fallback}
	}
	return s.create(ctx, Template{TeamID: teamID, Name: copyName(t.Name)}, v.Text, variables)
}

// Delete deletes a template and returns its id. Emails that were accepted with the template do not change. The next
// Sweep deletes the template's versions.
func (s *Service) Delete(ctx context.Context, teamID, idOrAlias string) (templateID string, err error) {
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		t, err := getTemplate(ctx, tx.Reader, teamID, idOrAlias)
		if err != nil {
			return err
		}
		templateID = t.ID
		audit.Target(ctx, t.ID)
		marked, err := markDeleted(ctx, tx, teamID, t.ID)
		if err != nil {
			return fmt.Errorf("delete template %s: %w", t.ID, err)
		}
		if !marked {
			return notFound() // another request has just deleted the template
		}
		s.changed(tx, teamID)
		return nil
	})
	return templateID, err
}

// Versions returns a template and a page of its versions, newest first, without variables and content.
func (s *Service) Versions(ctx context.Context, teamID, idOrAlias string, p page.Page) (t Template, all []Version,
	more bool, err error) {
	if t, err = getTemplate(ctx, s.d.Reader, teamID, idOrAlias); err != nil {
		return t, nil, false, err
	}
	all, more, err = listVersions(ctx, s.d.Reader, teamID, t.ID, p)
	return t, all, more, err
}

// Version returns a template and the version with the given id or number. The caller must close the version.
func (s *Service) Version(ctx context.Context, teamID, idOrAlias, version string) (Template, Version, error) {
	t, err := getTemplate(ctx, s.d.Reader, teamID, idOrAlias)
	if err != nil {
		return t, Version{}, err
	}
	v, err := s.version(ctx, &t, version)
	if err == nil {
		err = s.readOne(ctx, &v)
	}
	return t, v, err
}

// version returns the version with the given id or number, without its content.
func (s *Service) version(ctx context.Context, t *Template, version string) (v Version, err error) {
	if id.Valid(version) {
		return getVersion(ctx, s.d.Reader, t.TeamID, t.ID, strings.ToLower(version))
	}
	number, bad := strconv.ParseInt(version, 10, 64)
	if bad != nil || strconv.FormatInt(number, 10) != version || number < 0 {
		return v, fault.New(fault.BadID, "version",
			"The `version` must be the id of a version, a valid UUID, or its number.")
	}
	return getVersionByNumber(ctx, s.d.Reader, t.TeamID, t.ID, number)
}

// Sweep deletes the versions of deleted templates. If a version was published, Sweep releases its content, which is
// deleted once no email uses it. The content of other versions is deleted immediately. The caller runs Sweep
// periodically.
func (s *Service) Sweep(ctx context.Context) error {
	for after := ""; ; {
		some, err := deletedTemplates(ctx, s.d.Reader, after)
		if err != nil || len(some) == 0 {
			return err
		}
		for i := range some {
			t := &some[i]
			err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return s.clear(ctx, tx, t) })
			if err != nil {
				return fmt.Errorf("delete the versions of template %s: %w", t.ID, err)
			}
			after = t.ID
		}
	}
}

// clear deletes a batch of a deleted template's versions. If the template has no versions left, clear deletes the
// template. The result is the number of deleted versions.
func (s *Service) clear(ctx context.Context, tx *db.Tx, t *Template) (int64, error) {
	all, err := someVersions(ctx, tx.Reader, t)
	if err != nil {
		return 0, err
	}
	if len(all) == 0 {
		deleteTemplate(ctx, tx, t)
		return 0, nil
	}
	ids := make([]string, len(all))
	for i, v := range all {
		ids[i] = v.ID
		if v.PublishedAt.IsZero() {
			s.contents.Delete(ctx, tx, t.TeamID, v.contentID)
		} else {
			s.contents.Release(ctx, tx, t.TeamID, v.contentID)
		}
	}
	deleteVersions(ctx, tx, t.TeamID, ids)
	return int64(len(ids)), nil
}

// EraseTeam deletes a team's templates. Package content deletes the content of a deleted team's templates.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for _, step := range []func(context.Context, *db.Tx, string) (int64, error){eraseVersions, eraseTemplates} {
		if err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return step(ctx, tx, teamID) }); err != nil {
			return fmt.Errorf("erase the templates of team %s: %w", teamID, err)
		}
	}
	return nil
}
