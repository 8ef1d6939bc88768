package config

import (
	"errors"
	"reflect"
)

// liveTag marks the settings that take effect without a restart.
const liveTag = "live"

// Changes compares two configurations. The first result names the settings that have changed and take effect without a
// restart. The second names those that need one.
func Changes(before, after Config) (live, restart []string) {
	a, b := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range a.NumField() {
		if reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			continue
		}
		tag := a.Type().Field(i).Tag
		if tag.Get(liveTag) == "true" {
			live = append(live, tag.Get("toml"))
		} else {
			restart = append(restart, tag.Get("toml"))
		}
	}
	return live, restart
}

// TakeLive returns the configuration before, with the live settings of after. The error joins the problems if these do
// not fit those that need a restart.
func TakeLive(before, after Config) (Config, error) {
	to, from := reflect.ValueOf(&before).Elem(), reflect.ValueOf(after)
	for i := range to.NumField() {
		if to.Type().Field(i).Tag.Get(liveTag) == "true" {
			to.Field(i).Set(from.Field(i))
		}
		if f := to.Field(i); f.Kind() == reflect.Slice && !f.IsNil() { // check writes to lists that the node reads
			f.Set(reflect.AppendSlice(reflect.MakeSlice(f.Type(), 0, f.Len()), f))
		}
	}
	l := &loader{config: before}
	l.settings = settings(&l.config)
	l.check()
	return before, errors.Join(l.problems...)
}
