package apply

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/postrider/postrider/client"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/sending/domains"
)

// fieldsOf returns the names of the fields that a spec has in files.
func fieldsOf(s spec) (names []string) {
	for f := range reflect.TypeOf(s).Elem().Fields() {
		if name := f.Tag.Get("toml"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// faults returns the errors that are not nil.
func faults(all ...error) (list []error) {
	for _, err := range all {
		if err != nil {
			list = append(list, err)
		}
	}
	return list
}

// compare adds a difference if a field of the file is present and has another value than the resource.
func compare[T comparable](list []Difference, field string, want *T, have T) []Difference {
	if want == nil || *want == have {
		return list
	}
	return append(list, Difference{Field: field, From: have, To: *want})
}

// compareFixed is compare for a field that cannot be changed.
func compareFixed[T comparable](list []Difference, field string, want *T, have T) []Difference {
	n := len(list)
	if list = compare(list, field, want, have); len(list) > n {
		list[n].fixed = true
	}
	return list
}

// has reports whether a field is among the differences.
func has(changes []Difference, field string) bool {
	for _, c := range changes {
		if c.Field == field {
			return true
		}
	}
	return false
}

// newName returns the field of a change that renames a resource.
func newName(changes []Difference, name string) (f client.Field[string]) {
	if has(changes, "name") {
		f = client.Set(name)
	}
	return f
}

// set returns a field of a change that has a value if the field is among the differences.
func set[T any](changes []Difference, field string, value *T) (f client.Field[T]) {
	if has(changes, field) && value != nil {
		f = client.Set(*value)
	}
	return f
}

// setOrRemove is like set for a text; "" removes the text.
func setOrRemove(changes []Difference, field string, value *string) client.Field[string] {
	if has(changes, field) && value != nil && *value == "" {
		return client.Null[string]()
	}
	return set(changes, field, value)
}

// scalarOf returns a value of a file as a value of a contact property or a variable.
func scalarOf(v any) scalar.Value {
	switch v := v.(type) {
	case nil:
		return scalar.Value{}
	case string:
		return scalar.OfText(v)
	case int64:
		return scalar.OfNumber(float64(v))
	case float64:
		return scalar.OfNumber(v)
	}
	return scalar.Value{Type: scalar.Other}
}

// sameScalar reports whether a value of a file equals one of a response.
func sameScalar(want, have any) bool { return scalarOf(want) == scalarOf(have) }

// domainSpec is a domain in a file.
type domainSpec struct {
	Region            *string          `toml:"region"`
	CustomReturnPath  *string          `toml:"custom_return_path"`
	TLS               *string          `toml:"tls"`
	OpenTracking      *bool            `toml:"open_tracking"`
	ClickTracking     *bool            `toml:"click_tracking"`
	TrackingSubdomain *string          `toml:"tracking_subdomain"`
	Capabilities      capabilitiesSpec `toml:"capabilities"`
	Setup             *string          `toml:"setup"`
	DMARC             *string          `toml:"dmarc"`
	BIMI              *string          `toml:"bimi"`
}

type capabilitiesSpec struct {
	Sending   *string `toml:"sending"`
	Receiving *string `toml:"receiving"`
}

func (s *domainSpec) read(name, _ string) (string, []error) {
	c := domains.Capabilities{}
	for field, from := range map[string]*string{"sending": s.Capabilities.Sending, "receiving": s.Capabilities.Receiving} {
		switch {
		case from == nil:
		case *from != "enabled" && *from != "disabled":
			return name, faults(fault.Invalidf("capabilities."+field, "The value must be `enabled` or `disabled`."))
		case field == "sending":
			c.Sending = new(*from == "enabled")
		default:
			c.Receiving = new(*from == "enabled")
		}
	}
	n := domains.NewDomain{Name: name, Region: deref(s.Region), ReturnPath: deref(s.CustomReturnPath),
		TrackingSubdomain: deref(s.TrackingSubdomain), TLS: deref(s.TLS), Capabilities: c}
	normal, err := n.Check()
	if err != nil {
		normal = name
	}
	change := s.setupChange()
	return normal, faults(err, change.Check())
}

// setupChange returns the set-up that the file names. It shares the texts with the spec.
func (s *domainSpec) setupChange() domains.SetupChange {
	return domains.SetupChange{Setup: s.Setup, DMARC: s.DMARC, BIMI: s.BIMI}
}

func (s *domainSpec) references() []reference { return nil }

func (s *domainSpec) differences(ctx context.Context, t *team, id string) (list []Difference, err error) {
	d, err := t.api.Domains.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	list = compareFixed(list, "region", s.Region, d.Region)
	for _, r := range d.Records {
		if label, _, _ := strings.Cut(r.Name, "."); r.Record == "SPF" && r.Type == "MX" {
			list = compareFixed(list, "custom_return_path", s.CustomReturnPath, label)
		}
	}
	list = compare(list, "tls", s.TLS, d.TLS)
	list = compare(list, "open_tracking", s.OpenTracking, d.OpenTracking)
	list = compare(list, "click_tracking", s.ClickTracking, d.ClickTracking)
	list = compare(list, "tracking_subdomain", s.TrackingSubdomain, deref(d.TrackingSubdomain))
	list = compare(list, "capabilities.sending", s.Capabilities.Sending, d.Capabilities.Sending)
	list = compare(list, "capabilities.receiving", s.Capabilities.Receiving, d.Capabilities.Receiving)
	if s.setupChange() == (domains.SetupChange{}) {
		return list, nil
	}
	setup, err := t.api.Domains.GetSetup(ctx, id)
	if err != nil {
		return nil, err
	}
	list = compare(list, "setup", s.Setup, setup.Setup)
	list = compare(list, "dmarc", s.DMARC, deref(setup.DMARC))
	return compare(list, "bimi", s.BIMI, deref(setup.BIMI)), nil
}

func (s *domainSpec) capabilities() client.CapabilitiesRequest {
	return client.CapabilitiesRequest{Sending: s.Capabilities.Sending, Receiving: s.Capabilities.Receiving}
}

func (s *domainSpec) create(ctx context.Context, t *team, name string, options ...client.RequestOption) (made, error) {
	d, err := t.api.Domains.Create(ctx, client.CreateDomain{Name: name, Region: deref(s.Region),
		CustomReturnPath: deref(s.CustomReturnPath), TLS: deref(s.TLS), OpenTracking: deref(s.OpenTracking),
		ClickTracking: deref(s.ClickTracking), TrackingSubdomain: deref(s.TrackingSubdomain),
		Capabilities: new(s.capabilities())}, options...)
	if err != nil {
		return made{}, err
	}
	all := d.Records
	if s.setupChange() != (domains.SetupChange{}) {
		setup, err := t.api.Domains.ChangeSetup(ctx, d.ID,
			client.ChangeSetup{Setup: s.Setup, DMARC: s.DMARC, BIMI: s.BIMI})
		if err != nil {
			return made{}, fmt.Errorf("the domain is created, but not with this set-up: %w", err)
		}
		all = nil
		for _, r := range setup.Records {
			all = append(all, client.Record{Name: r.Name, Type: r.Type, Value: r.Value, Priority: r.Priority})
		}
	}
	note := "Add these DNS records, and verify the domain:"
	for _, r := range all {
		value := r.Value
		if r.Type == "MX" {
			value = fmt.Sprintf("%d %s", r.Priority, value)
		}
		note += fmt.Sprintf("\n  %s %s %s", r.Name, r.Type, value)
	}
	return made{id: d.ID, note: note}, nil
}

func (s *domainSpec) update(ctx context.Context, t *team, id, _ string, changes []Difference) error {
	in := client.UpdateDomain{TLS: set(changes, "tls", s.TLS), OpenTracking: set(changes, "open_tracking", s.OpenTracking),
		ClickTracking:     set(changes, "click_tracking", s.ClickTracking),
		TrackingSubdomain: setOrRemove(changes, "tracking_subdomain", s.TrackingSubdomain)}
	if has(changes, "capabilities.sending") || has(changes, "capabilities.receiving") {
		in.Capabilities = client.Set(s.capabilities())
	}
	setup := client.ChangeSetup{}
	others := 0
	for _, c := range changes {
		switch c.Field {
		case "setup":
			setup.Setup = s.Setup
		case "dmarc":
			setup.DMARC = s.DMARC
		case "bimi":
			setup.BIMI = s.BIMI
		default:
			others++
		}
	}
	if others > 0 {
		if _, err := t.api.Domains.Update(ctx, id, in); err != nil {
			return err
		}
	}
	if setup == (client.ChangeSetup{}) {
		return nil
	}
	_, err := t.api.Domains.ChangeSetup(ctx, id, setup)
	return err
}

// propertySpec is a contact property in a file.
type propertySpec struct {
	Type          string `toml:"type"`
	FallbackValue any    `toml:"fallback_value"`
}

func (s *propertySpec) read(name, _ string) (string, []error) {
	n := contacts.NewProperty{Name: name, Type: scalar.Type(s.Type), Fallback: scalarOf(s.FallbackValue)}
	return name, faults(n.Check())
}

func (s *propertySpec) references() []reference { return nil }

func (s *propertySpec) differences(ctx context.Context, t *team, id string) ([]Difference, error) {
	p, err := t.api.ContactProperties.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	list := compareFixed(nil, "type", &s.Type, p.Type)
	if s.FallbackValue != nil && !sameScalar(s.FallbackValue, p.FallbackValue) {
		list = append(list, Difference{Field: "fallback_value", From: p.FallbackValue, To: s.FallbackValue})
	}
	return list, nil
}

func (s *propertySpec) create(ctx context.Context, t *team, name string, options ...client.RequestOption) (made,
	error) {
	p, err := t.api.ContactProperties.Create(ctx, client.CreateProperty{Key: name, Type: s.Type,
		FallbackValue: s.FallbackValue}, options...)
	if err != nil {
		return made{}, err
	}
	return made{id: p.ID}, nil
}

func (s *propertySpec) update(ctx context.Context, t *team, id, _ string, _ []Difference) error {
	_, err := t.api.ContactProperties.Update(ctx, id, client.UpdateProperty{FallbackValue: client.Set(s.FallbackValue)})
	return err
}

// topicSpec is a topic in a file.
type topicSpec struct {
	DefaultSubscription string  `toml:"default_subscription"`
	Description         *string `toml:"description"`
	Visibility          *string `toml:"visibility"`
}

func (s *topicSpec) read(name, _ string) (string, []error) {
	n := contacts.NewTopic{Name: name, Description: deref(s.Description),
		Default: contacts.Subscription(s.DefaultSubscription), Visibility: contacts.Visibility(deref(s.Visibility))}
	return name, faults(n.Check())
}

func (s *topicSpec) references() []reference { return nil }

func (s *topicSpec) differences(ctx context.Context, t *team, id string) ([]Difference, error) {
	p, err := t.api.Topics.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	list := compareFixed(nil, "default_subscription", &s.DefaultSubscription, p.DefaultSubscription)
	list = compare(list, "description", s.Description, p.Description)
	return compare(list, "visibility", s.Visibility, p.Visibility), nil
}

func (s *topicSpec) create(ctx context.Context, t *team, name string, options ...client.RequestOption) (made, error) {
	p, err := t.api.Topics.Create(ctx, client.CreateTopic{Name: name, DefaultSubscription: s.DefaultSubscription,
		Description: deref(s.Description), Visibility: deref(s.Visibility)}, options...)
	if err != nil {
		return made{}, err
	}
	return made{id: p.ID}, nil
}

func (s *topicSpec) update(ctx context.Context, t *team, id, name string, changes []Difference) error {
	_, err := t.api.Topics.Update(ctx, id, client.UpdateTopic{Name: newName(changes, name),
		Description: setOrRemove(changes, "description", s.Description),
		Visibility:  set(changes, "visibility", s.Visibility)})
	return err
}

// keySpec is an API key in a file.
type keySpec struct {
	Permission string `toml:"permission"`
	Domain     string `toml:"domain"` // name of a domain

	name string
}

func (s *keySpec) read(name, _ string) (string, []error) {
	if s.name = name; s.Permission == "" {
		return name, faults(fault.MissingField("permission"))
	}
	n := teams.NewKey{Name: name, Permission: teams.Permission(s.Permission)}
	if s.Domain != "" {
		d := domains.NewDomain{Name: s.Domain}
		if normal, err := d.Check(); err == nil {
			s.Domain = normal
		}
		n.DomainID = id.New() // the domain may not exist yet
	}
	err := n.Check()
	if e, ok := err.(*fault.Error); ok && e.Field == "domain_id" {
		err = fault.Invalidf("domain", "The `domain` field goes with the permission `sending_access` only.")
	}
	return name, faults(err)
}

func (s *keySpec) references() []reference {
	if s.Domain == "" {
		return nil
	}
	return []reference{{"domain", "domains", s.Domain}}
}

// differences compares the spec with what the state file notes, because the API does not show the permission.
func (s *keySpec) differences(_ context.Context, t *team, id string) ([]Difference, error) {
	n := t.state.of("api_keys")[s.name]
	if n.ID != id || n.Permission == "" {
		return nil, nil
	}
	return compareFixed(compareFixed(nil, "permission", &s.Permission, n.Permission), "domain", &s.Domain, n.Domain), nil
}

func (s *keySpec) create(ctx context.Context, t *team, name string, _ ...client.RequestOption) (made, error) {
	in := client.CreateKey{Name: name, Permission: s.Permission}
	if s.Domain != "" {
		in.DomainID, _ = t.idOf("domains", s.Domain)
	}
	k, err := t.api.APIKeys.Create(ctx, in)
	if err != nil {
		return made{}, err
	}
	return made{id: k.ID, secret: k.Token}, nil
}

func (s *keySpec) update(ctx context.Context, t *team, id, name string, _ []Difference) error {
	_, err := t.api.APIKeys.Update(ctx, id, client.RenameKey{Name: name})
	return err
}
