package fault

import (
	"fmt"
	"reflect"
	"strings"
)

// Complete returns an error that names every nil field of deps, the struct that holds a constructor's dependencies.
// Fields with the tag `deps:"optional"` may be nil; their comments say what a nil value means. Complete checks only
// pointers, interfaces, functions, maps and channels.
//
// An interface that holds a nil pointer counts as nil. Complete cannot detect that a method value has a nil receiver.
// Callers of constructors must pass closures for methods of services that may not be built yet.
//
// A constructor that returns Complete's error cannot be used with a missing dependency. Without Complete, a missing
// function field could silently disable a limit.
func Complete(deps any) error {
	v := reflect.ValueOf(deps)
	var missing []string
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if isNil(v.Field(i)) && field.Tag.Get("deps") != "optional" {
			missing = append(missing, field.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%s lacks %s", v.Type(), strings.Join(missing, ", "))
}

// isNil reports whether v is nil or an interface that holds a nil value. Values of other kinds are never nil.
func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Interface:
		return v.IsNil() || isNil(v.Elem())
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan:
		return v.IsNil()
	}
	return false
}
