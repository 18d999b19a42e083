package commandline

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// value is the value of a flag. parse reads its text. String does not return the default, which
// the flag's help states.
type value[T any] struct {
	to          *T
	placeholder string
	parse       func(string) (T, error)
}

func (v value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err == nil {
		*v.to = parsed
	}
	return err
}

func (value[T]) String() string { return "" }
func (v value[T]) Type() string { return v.placeholder }

// durationType is the type that the value of a Duration reports.
const durationType = "D"

// Durations says what ParseDuration reads.
const Durations = durationType + " is seconds, such as 10 or 0.5, or a text such as 500ms, 1m30s or 2h."

// Duration returns the value of a flag whose text ParseDuration reads.
func Duration(to *time.Duration) pflag.Value {
	return value[time.Duration]{to, durationType, ParseDuration}
}

// Int returns the value of a flag that takes a whole number.
func Int(to *int) pflag.Value {
	return value[int]{to, "N", func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", Shown(text))
		}
		return n, nil
	}}
}

// Uint returns the value of a flag that takes a whole number of 0 or more.
func Uint(to *uint64) pflag.Value {
	return value[uint64]{to, "N", func(text string) (uint64, error) {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number of 0 or more", Shown(text))
		}
		return n, nil
	}}
}

// ListType is the type that the value of a List reports.
const ListType = "LIST"

// List returns the value of a flag that takes texts separated by commas. Unlike pflag's lists, it
// gives no meaning to quotes, and it is given once.
func List(to *[]string) pflag.Value {
	given := false
	return value[[]string]{to, ListType, func(text string) ([]string, error) {
		if given {
			return nil, errors.New("it is given twice, and only one would count: give all in one, separated by commas")
		}
		given = true
		if text == "" {
			return nil, nil
		}
		return strings.Split(text, ","), nil
	}}
}

// Optional returns the value of a flag that leaves *to nil unless the flag is given.
func Optional[T any](to **T, of func(*T) pflag.Value) pflag.Value {
	return value[*T]{to, of(new(T)).Type(), func(text string) (*T, error) {
		given := new(T)
		return given, of(given).Set(text)
	}}
}

// Bool adds a flag that is true if it is given without a value.
func Bool(flags *pflag.FlagSet, to *bool, name, short, help string) {
	flags.VarPF(value[bool]{to, "bool", ParseBool}, name, short, help).NoOptDefVal = "true"
}

// ParseBool reads the value of a flag that is true or false.
func ParseBool(text string) (bool, error) {
	switch text {
	case "true", "1", "yes":
		return true, nil
	case "false", "0", "no":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", Shown(text))
}

// ParseDuration reads a duration in the form that Go writes it, or a plain number of seconds
// as flock(1), timeout(1) and sleep(1) do.
func ParseDuration(text string) (time.Duration, error) {
	if strings.Trim(text, "+-.0123456789") == "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if ns := seconds * float64(time.Second); err == nil && ns > -1<<63 && ns < 1<<63 {
			return time.Duration(ns), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: give seconds, such as 10 or 0.5, or 500ms, 1m30s, 2h", Shown(text))
	}
	return d, nil
}
