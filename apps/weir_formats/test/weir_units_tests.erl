%% Durations and sizes with units.
-module(weir_units_tests).

-include_lib("proper/include/proper.hrl").
-include_lib("eunit/include/eunit.hrl").

durations_test_() ->
    [
        ?_assertEqual({Text, {ok, Milliseconds}}, {Text, weir_units:duration(Text)})
     || {Text, Milliseconds} <- [
            {"250ms", 250}, {<<"30s">>, 30_000}, {"5m", 300_000}, {["2", <<"h">>], 7_200_000}, {"1d", 86_400_000},
            {"0s", 0}, {"010s", 10_000}, {"999999999999999d", 86_399_999_999_999_913_600_000}
        ]
    ].

wrong_durations_test_() ->
    [
        ?_assertEqual({Text, {error, "a duration with a unit, ms, s, m, h or d, such as \"30s\""}}, {
            Text, weir_units:duration(Text)
        })
     || Text <- [
            "", "30", 30, <<"30">>, "s", "-1s", "+1s", "1.5s", "1 s", " 1s", "1s ", "1S", "1M", "1us", "1h30m",
            "infinity", "1000000000000000s", infinity, none, 1.5, [s], [$1 | $s], <<"1", 255>>, <<1:7>>, "１s"
        ]
    ].

sizes_test_() ->
    [
        ?_assertEqual({Text, {ok, Bytes}}, {Text, weir_units:size(Text)})
     || {Text, Bytes} <- [
            {"512B", 512}, {<<"64KiB">>, 65_536}, {"10MiB", 10_485_760}, {"1GiB", 1_073_741_824}, {"64kB", 64_000},
            {"10MB", 10_000_000}, {"1GB", 1_000_000_000}, {"0B", 0}
        ]
    ].

wrong_sizes_test_() ->
    [
        ?_assertEqual({Text, {error, "a size with a unit, B, KiB, MiB, GiB, kB, MB or GB, such as \"64KiB\""}}, {
            Text, weir_units:size(Text)
        })
     || Text <- ["", "64", 64, "64K", "64KB", "64kb", "64kib", "64 KiB", "-1B", "1.5MiB", "1TiB", "infinity"]
    ].

infinity_test_() ->
    [
        ?_assertEqual({ok, infinity}, weir_units:duration_or_infinity(<<"infinity">>)),
        ?_assertEqual({ok, infinity}, weir_units:duration_or_infinity(infinity)),
        ?_assertEqual({ok, 1000}, weir_units:duration_or_infinity("1s")),
        ?_assertEqual(
            {error, "a duration with a unit, ms, s, m, h or d, such as \"30s\", or \"infinity\""},
            weir_units:duration_or_infinity("Infinity")
        ),
        ?_assertEqual({ok, infinity}, weir_units:size_or_infinity("infinity")),
        ?_assertEqual({ok, 1024}, weir_units:size_or_infinity("1KiB")),
        ?_assertMatch({error, "a size " ++ _}, weir_units:size_or_infinity(1))
    ].

formats_test_() ->
    [
        ?_assertEqual({Milliseconds, Text}, {Milliseconds, weir_units:format_duration(Milliseconds)})
     || {Milliseconds, Text} <- [
            {0, <<"0s">>}, {999, <<"999ms">>}, {1000, <<"1s">>}, {1001, <<"1001ms">>}, {90_000, <<"90s">>},
            {5_400_000, <<"90m">>}, {86_400_000, <<"1d">>}, {infinity, <<"infinity">>}
        ]
    ] ++
        [
            ?_assertEqual({Bytes, Text}, {Bytes, weir_units:format_size(Bytes)})
         || {Bytes, Text} <- [
                {0, <<"0B">>}, {1023, <<"1023B">>}, {1024, <<"1KiB">>}, {1000, <<"1kB">>}, {65_536, <<"64KiB">>},
                {1 bsl 20, <<"1MiB">>}, {1000_000, <<"1MB">>}, {1_024_000, <<"1024kB">>}, {infinity, <<"infinity">>}
            ]
        ].

what_is_formatted_is_read_test_() ->
    {timeout, 60, fun() ->
        weir_test_property:shrink(prop_reread(fun weir_units:duration/1, fun weir_units:format_duration/1), 500),
        weir_test_property:shrink(prop_reread(fun weir_units:size/1, fun weir_units:format_size/1), 500)
    end}.

prop_reread(Parse, Format) ->
    ?FORALL(
        Number,
        ?LET({Count, Unit}, {range(0, 5000), oneof([1, 1000, 60_000, 86_400_000, 1 bsl 10, 1 bsl 30])}, Count * Unit),
        weir_test_property:holds(fun() -> Parse(Format(Number)) =:= {ok, Number} end)
    ).
