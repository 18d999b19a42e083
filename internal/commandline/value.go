package commandline

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var durationType = reflect.TypeFor[time.Duration]()

// isValue reports whether a text can be set to a value of that type.
func isValue(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer:
		return t.Elem().Kind() != reflect.Pointer && isValue(t.Elem())
	case reflect.String, reflect.Bool, reflect.Int, reflect.Uint64:
		return true
	case reflect.Slice:
		return t.Elem().Kind() != reflect.Slice && isValue(t.Elem())
	}
	return t == durationType
}

// set sets v to what the text says.
func set(v reflect.Value, text string) error {
	if v.Kind() == reflect.Pointer {
		value := reflect.New(v.Type().Elem())
		if err := set(value.Elem(), text); err != nil {
			return err
		}
		v.Set(value)
		return nil
	}
	if v.Type() == durationType {
		d, err := ParseDuration(text)
		if err == nil {
			v.SetInt(int64(d))
		}
		return err
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		switch text {
		case "true", "1", "yes":
			v.SetBool(true)
		case "false", "0", "no":
			v.SetBool(false)
		default:
			return fmt.Errorf("%q is neither true nor false", text)
		}
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is no whole number", text)
		}
		v.SetInt(int64(n))
	case reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no whole number, 0 or more", text)
		}
		v.SetUint(n)
	case reflect.Slice:
		v.SetZero()
		if text == "" {
			return nil
		}
		for part := range strings.SplitSeq(text, ",") {
			if err := add(v, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds to a slice what the text says.
func add(v reflect.Value, text string) error {
	element := reflect.New(v.Type().Elem()).Elem()
	if err := set(element, text); err != nil {
		return err
	}
	v.Set(reflect.Append(v, element))
	return nil
}

// ParseDuration reads a duration as Go writes them, or a plain number of seconds as
// flock(1), timeout(1) and sleep(1) do.
func ParseDuration(text string) (time.Duration, error) {
	if strings.Trim(text, "+-.0123456789") == "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if ns := seconds * float64(time.Second); err == nil && ns > -1<<63 && ns < 1<<63 {
			return time.Duration(ns), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration: give seconds, such as 10 or 0.5, or 500ms, 1m30s, 2h", text)
	}
	return d, nil
}
