%% @private
%% @doc Resolves a name, which may take long, in a process of its own.
-module(weir_proxy_resolver).

-export([resolve/1]).

%% @doc Sends `{weir_proxy_resolved, Name, Addresses}' to the caller when the name has addresses, of IPv4 if it has such. An answer that fails is
%% none: the address that was there before stays.
-spec resolve(binary()) -> pid().
resolve(Name) ->
    Caller = self(),
    spawn_link(fun() ->
        case addresses(binary_to_list(Name), [inet, inet6]) of
            [] -> ok;
            Addresses -> Caller ! {weir_proxy_resolved, Name, Addresses}
        end
    end).

addresses(_Name, []) -> [];
addresses(Name, [Family | Others]) ->
    case inet:getaddrs(Name, Family) of
        {ok, [_ | _] = Addresses} -> Addresses;
        _ -> addresses(Name, Others)
    end.
